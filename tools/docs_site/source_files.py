"""Pages of the source files to which documents link, so that the site needs no forge."""

from __future__ import annotations

import posixpath
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

_LINK = re.compile(r"\]\((?!#|[a-z]+:)([^)\s#]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LANGUAGES = {
    ".py": "python", ".proto": "protobuf", ".yaml": "yaml", ".tpl": "yaml",
    ".ipynb": "json", ".json": "json", ".js": "javascript", ".sh": "sh",
}  # fmt: skip


@cache
def tracked(root: Path) -> frozenset[str]:
    """The repository's files, from its root."""
    done = subprocess.run(["git", "ls-files"], cwd=root, check=True, capture_output=True, text=True)
    return frozenset(done.stdout.split("\n"))


def page_of(root: Path, page: str, target: str) -> str | None:
    """The page of the site to which a link of `page` leads; None where it stays as it is.

    A source file has a page of its own, a folder its README or the list of its files.
    """
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
    files = tracked(root)
    if path in files:
        return None if path.endswith((".md", ".png", ".svg")) else path
    if f"{path}/README.md" in files:
        return f"{path}/README"
    return f"{path}/index" if any(file.startswith(f"{path}/") for file in files) else None


def _rewrite(root: Path, page: str, text: str) -> tuple[str, set[str]]:
    """The text with its links as the site has them, and the pages of source files they lead to."""
    led: set[str] = set()

    def replace(found: re.Match[str]) -> str:
        name = page_of(root, page, found[1])
        if name is None:
            return found[0]
        if name.endswith("/README"):
            return f"](/{name}.md{found[2] or ''})"
        led.add(name)
        return f"](/build/pages/source/{name}.md{found[2] or ''})"

    parts = _FENCE.split(text)
    done = (part if part.startswith("```") else _LINK.sub(replace, part) for part in parts)
    return "".join(done), led


def _make(root: Path, name: str) -> None:
    """Writes a source file's page, or a folder's."""
    path = name.removesuffix("/index")
    if path == name:
        language = _LANGUAGES.get(posixpath.splitext(path)[1], "text")
        body = f"```{{literalinclude}} /{path}\n:language: {language}\n```"
    else:
        inside = sorted(file for file in tracked(root) if file.startswith(f"{path}/"))
        body = "\n".join(f"- `{file}`" for file in inside)
    made = root / "build" / "pages" / "source" / f"{name}.md"
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text(f"---\norphan: true\n---\n\n# {path}\n\n{body}\n")


def _make_all(app: Sphinx) -> None:
    """Before Sphinx lists the pages, or it would not know of these."""
    root = Path(app.srcdir)
    led: set[str] = set()
    for file in tracked(root):
        if file.endswith(".md"):
            led |= _rewrite(root, file.removesuffix(".md"), (root / file).read_text())[1]
    for name in led:
        _make(root, name)


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    if not page.startswith("build/"):
        source[0], _ = _rewrite(Path(app.srcdir), page, source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx's entry."""
    app.connect("builder-inited", _make_all)
    app.connect("source-read", _read, priority=400)
    return {"parallel_read_safe": True}
