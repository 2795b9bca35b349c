"""The commands and the Python of documents, as they are printed there."""

from __future__ import annotations

import ast
import re
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
_NO_PAGES = re.compile(r"CHANGELOG\.md|\.github/.*")
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:^ {4}.*\n)+", re.MULTILINE)
_PROGRAM = re.compile(
    r"\s*(?:[A-Z_]+=\S* )*(?:"
    r"[A-Z_]+=\$\(.*\)$|"
    r"(?:\.(?= \S*/)|cd|export|eval|make|helm|kubectl|npm|node|torchrun|vllm|litellm|"
    r"(?:[\w.-]+/bin/)?(?:podium|pip|python[\d.]*)|pre-commit|cluster|sh|curl|docker|kind|"
    r"tail|tar)(?: |$))"
)
_CALL = re.compile(r"(?<![\w./-])podium [^|`)\n]+")


def pages() -> list[str]:
    """The documents whose commands are tested."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.split() if not _NO_PAGES.fullmatch(name)]


def commands(text: str) -> Iterator[str]:
    """Each shell command of a page's blocks, on one line and without its comment."""
    for block in _blocks(text, ("", "sh", "bash", "console")):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            if _PROGRAM.match(line):
                yield " ".join(re.sub(r"\s+#.*", "", line).split())


def unclassified(text: str) -> Iterator[str]:
    """Indented blocks that are neither commands, each line, nor YAML, JSON or Python.

    A program that `commands` does not know would be such, and be seen by no test.
    """
    for block in _INDENTED.findall(_FENCED.sub("", text)):
        lines = re.sub(r"\\\n\s*", "", block).splitlines()
        if not all(map(_PROGRAM.match, lines)) and not _is_data(textwrap.dedent(block)):
            yield block


def _is_data(block: str) -> bool:
    try:
        if isinstance(yaml.safe_load(block), dict | list):
            return True
    except yaml.YAMLError:
        pass
    try:
        return isinstance(ast.parse(block).body[0], ast.FunctionDef)
    except SyntaxError:
        return False


def script_commands(text: str) -> list[str]:
    """Each call of `podium` in a shell script, or in a comment of one or of a job file.

    A variable is its name, and a sum is 1.
    """
    plain = re.sub(r"\$\{?(\w+)\}?", r"\1", re.sub(r"\$\(\(.*?\)\)", "1", text))
    lines = re.sub(r"\\\n\s*", "", plain)
    return [found.strip() for found in _CALL.findall(lines)]


def python(text: str) -> list[str]:
    """Each block of Python."""
    return [body for language, body in _FENCED.findall(text) if language == "python"]


def yaml_blocks(text: str) -> list[str]:
    """Each fenced block of YAML."""
    return [body for language, body in _FENCED.findall(text) if language == "yaml"]


def _blocks(text: str, languages: tuple[str, ...]) -> Iterator[str]:
    for language, body in _FENCED.findall(text):
        if language in languages:
            yield body
    yield from _INDENTED.findall(_FENCED.sub("", text))
