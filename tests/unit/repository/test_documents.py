"""What a document names is there: files, headings, make targets, modules and commands."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from podium.cli.default_group import DefaultGroup
from podium.cli.main import cli
from support.gathered import wrong_of
from support.programs import missing

if shutil.which("git") is None:
    pytest.skip(missing("git", "git"), allow_module_level=True)

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted(
    subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?```|(?:^ {4}.*\n)+|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_PATH = re.compile(
    r"(?<![\w./-])(?:\.\./)*(?:bench|charts|docs|examples|libs|proto|services|tests|tools)"
    r"/[\w./-]*\w"
)
_MAKE = re.compile(
    r"(?:^ *|(?<=`))make ([a-z][a-z0-9-]*)(?=`|\s*$|\s+#|\s+[A-Z_]+=|\s{2,})", re.MULTILINE
)
_MODULE = re.compile(r"python3? -m ((?:podium|bench)[\w.]*)")
_COMMAND = re.compile(
    r"(?:^|[`$;|&] ?|^ +)podium ((?:[a-z][a-z-]*)(?: [a-z][a-z-]*)?)", re.MULTILINE
)


def code_of(text: str) -> str:
    """Everything that stands as code."""
    return "\n".join(match.group() for match in _CODE.finditer(text))


@cache
def headings(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in found)
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


def broken_links(document: Path) -> Iterator[str]:
    text = document.read_text()
    for target in _LINK.findall(re.sub(r"```.*?```|`[^`\n]+`", "", text, flags=re.DOTALL)):
        path, _, anchor = target.partition("#")
        if ":" in path:
            continue
        file = document.parent / path if path else document
        found = file.exists()
        if found and anchor and file.suffix == ".md":
            found = anchor in headings(file.read_text())
        if not found:
            yield target


def paths(code: str) -> list[str]:
    """Files and folders of the repository; a name that goes on as a pattern is none."""
    found = _PATH.finditer(code)
    return [each.group() for each in found if code[each.end() : each.end() + 1] not in set("*<{[…")]


@cache
def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def unknown_commands(text: str) -> Iterator[str]:
    """`podium a b` where there is no `a`, or `a` is a group without `b`."""
    for words in _COMMAND.findall(code_of(text)):
        first, *rest = words.split()
        command = cli.get_command(click.Context(cli), first)
        if isinstance(command, DefaultGroup):
            rest = command.named(rest)
        if command is None or (
            rest
            and isinstance(command, click.Group)
            and command.get_command(click.Context(command), rest[0]) is None
        ):
            yield words


def not_there(document: Path) -> Iterator[str]:
    """What a document names and is not there."""
    text = document.read_text()
    code = code_of(text)
    yield from (f"link {each}" for each in broken_links(document))
    for each in paths(code):
        if not any((folder / each).exists() for folder in (ROOT, document.parent)):
            yield f"path {each}"
    yield from (f"make {each}" for each in _MAKE.findall(code) if each not in targets())
    for each in _MODULE.findall(code):
        if not importlib.util.find_spec(each):
            yield f"-m {each}"
    yield from (f"podium {each}" for each in unknown_commands(text))


def test_what_a_document_names_is_there() -> None:
    wrong = wrong_of([(name, ROOT / name) for name in DOCUMENTS], not_there)
    assert not wrong, wrong


def test_the_checks_see_what_is_not_there(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text("# A title: `x`\n[a](b.md) [c](#d) [e](a.md#a-title-x) [f](https://x/y)\n")
    assert list(broken_links(document)) == ["b.md", "#d"]
    assert list(unknown_commands("`podium job sumbit` `podium evaluate x` `podium job list`")) == [
        "job sumbit",
        "evaluate x",
    ]
    assert paths("`docs/none.md` `../tests/integration/test_a*.py`\n") == ["docs/none.md"]
    made = "`make tests`\n    make lint  # all\n    make it so\n"
    assert _MAKE.findall(made) == ["tests", "lint"]
    assert {"test", "demo"} <= targets()
