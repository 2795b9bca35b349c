"""Text files are UTF-8, whatever the locale says: `LANG=en_US` alone means Latin-1."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from support.sources import written

CALLS = re.compile(r"(read_text|write_text|open)\((?!encoding=\"utf-8\"\))")
TEXT_MODES = {"r", "w", "a", "x", "r+", "w+", "a+"}


def of_the_locale(tree: ast.AST) -> Iterator[str]:
    """Calls that read or write text and name no encoding."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or any(each.arg == "encoding" for each in call.keywords):
            continue
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        modes = {each.value for each in call.args if isinstance(each, ast.Constant)}
        if (
            name == "write_text"
            or (name == "read_text" and not call.args)
            or (name in ("open", "fdopen") and modes & TEXT_MODES)
        ):
            yield f"line {call.lineno}: {ast.unparse(call)}"


def test_no_line_reads_or_writes_text_as_the_locale_says() -> None:
    # Few files name any of these at all, and to parse the others takes seconds.
    found = {
        file: lines
        for file, text in written("libs", "services").items()
        if CALLS.search(text) and (lines := list(of_the_locale(ast.parse(text))))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("path.read_text()", 1),
        ("path.write_text(text)", 1),
        ("open(path, 'w')", 1),
        ("path.read_text('utf-8-sig')", 0),
        ("path.write_text(text, encoding='utf-8')", 0),
        ("open(path, 'rb')", 0),
    ],
)
def test_the_rule_tells_text_from_bytes(line: str, told: int) -> None:
    assert len(list(of_the_locale(ast.parse(line)))) == told
