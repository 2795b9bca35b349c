"""The site's contents, by the index that docs/README.md is."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

INDEX = "docs/README"
# Folders whose README leads to each of their pages.
FOLDERS = ("docs/decisions", "docs/runbooks")
GENERATED = ("build/pages/contract/index", "build/pages/python")

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_PAGE = re.compile(r"\]\(([^)#:]+)\.md\)")


def sections(text: str, folder: str) -> dict[str, list[str]]:
    """The pages that each section of an index names, in its order, each page once."""
    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    parts = _SECTION.split(text)
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        pages = (posixpath.normpath(f"{folder}/{link}") for link in _PAGE.findall(body))
        found[title] = [page for page in dict.fromkeys(pages) if page not in seen]
        seen.update(found[title])
    return found


def toctree(pages: list[str], caption: str = "") -> str:
    """A table of contents that stands at the side and not in the page."""
    options = f":caption: {caption}\n" if caption else ""
    entries = "\n".join(f"/{page}" for page in pages)
    return f"\n```{{toctree}}\n:hidden:\n:titlesonly:\n{options}\n{entries}\n```\n"


def _add(app: Sphinx, page: str, source: list[str]) -> None:
    folder = posixpath.dirname(page)
    if page == INDEX:
        source[0] += toctree(["README"])
        named = sections(source[0], folder)
        for title, pages in named.items():
            extra = list(GENERATED) if title == "To look something up" else []
            source[0] += toctree(pages + extra, title)
        rest = set(app.env.found_docs) - {INDEX, "README", *GENERATED}
        for pages in named.values():
            rest.difference_update(pages)
        kept = sorted(p for p in rest if not p.startswith((*FOLDERS, "build/pages/")))
        source[0] += toctree(kept, "And besides")
    elif folder in FOLDERS and page.endswith("/README"):
        pages = sorted(p for p in app.env.found_docs if posixpath.dirname(p) == folder)
        source[0] += toctree([p for p in pages if p != page])


def _entrance(app: Sphinx, error: Exception | None) -> None:
    """A site is entered at index.html."""
    if error is None and app.builder.format == "html":
        text = (
            "<!doctype html><html lang=en><meta charset=utf-8><title>Podium</title>"
            f'<meta http-equiv=refresh content="0; url={INDEX}.html">'
            f'<a href="{INDEX}.html">Podium\'s documents</a></html>\n'
        )
        (Path(app.outdir) / "index.html").write_text(text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx's entry."""
    app.connect("source-read", _add)
    app.connect("build-finished", _entrance)
    return {"parallel_read_safe": True}
