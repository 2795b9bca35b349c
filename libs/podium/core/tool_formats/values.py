"""Values as Python or JSON writes them, read without evaluating anything."""

from __future__ import annotations

import re
from typing import Any

from podium.core.tool_formats.reading import SHOWN, UnreadableError, json_at

_MOST_DEPTH = 64
_CONSTANTS = {"true": True, "True": True, "false": False, "False": False}
_NULLS = {"null": None, "None": None}
_WORD = re.compile(r"[A-Za-z]+")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_SPACE = re.compile(r"\s*")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": ""}
_CLOSES = re.compile(r"\s*(?:[,:)\]}]|$)")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def skip(text: str, position: int) -> int:
    """Past white space."""
    found = _SPACE.match(text, position)
    return position if found is None else found.end()


def literal_at(text: str, position: int, depth: int = 0) -> tuple[Any, int]:
    """A value as Python or JSON writes it, also with line breaks in strings, and where it ends.

    Raises:
        UnreadableError: there is none.
    """
    if depth > _MOST_DEPTH:
        raise UnreadableError("its arguments are nested too deep")
    sign = text[position : position + 1]
    if sign and sign in "'\"":
        return _string_at(text, position)
    if sign and sign in "[({":
        if not depth:
            try:
                return json_at(text, position)
            except UnreadableError:
                pass
        return (_dict_at if sign == "{" else _list_at)(text, position, depth)
    if word := _WORD.match(text, position):
        for constants in (_CONSTANTS, _NULLS):
            if word[0] in constants:
                return constants[word[0]], word.end()
    if number := _NUMBER.match(text, position):
        return number_of(number[0]), number.end()
    raise UnreadableError(f"{text[position : position + SHOWN]!r} is no value")


def number_of(digits: str) -> int | float:
    """Also as only Python writes it: `+1`, `.5`, `007`.

    Raises:
        UnreadableError: it is too great.
    """
    if re.fullmatch(r"[+-]?\d+", digits):
        try:
            return int(digits)
        except ValueError:
            raise UnreadableError("a number has too many digits") from None
    value, _ = json_at(repr(float(digits)).replace("inf", "1e999"), 0)
    return float(value)


def _string_at(text: str, position: int) -> tuple[str, int]:
    quote = text[position]
    start = position + 1
    if text.startswith(quote * 3, position):
        end = text.find(quote * 3, position + 3)
        if end >= 0:
            return text[position + 3 : end], end + 3
    end = start
    while True:
        end = text.find(quote, end)
        if end < 0:
            raise UnreadableError(f"{text[position : position + SHOWN]!r} does not end")
        escapes = end
        while escapes > start and text[escapes - 1] == "\\":
            escapes -= 1
        # A quote that nothing could follow stands in the words: some templates escape none.
        if (end - escapes) % 2 == 0 and _CLOSES.match(text, end + 1):
            return _unescaped(text[start:end]), end + 1
        end += 1


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        if digits := match[1] or match[2]:
            return chr(int(digits, 16))
        return _ESCAPED.get(match[3], match[3] if match[3] in "\\'\"/" else match[0])

    if "\\" not in text:
        return text
    joined = _ESCAPE.sub(one, text)
    return _PAIR.sub(lambda m: m[0].encode("utf-16", "surrogatepass").decode("utf-16"), joined)


def _list_at(text: str, position: int, depth: int) -> tuple[list[Any], int]:
    closing = "]" if text[position] == "[" else ")"
    items: list[Any] = []
    position = skip(text, position + 1)
    while not text.startswith(closing, position):
        value, position = literal_at(text, position, depth + 1)
        items.append(value)
        position = after_item(text, position, closing)
    return items, position + 1


def _dict_at(text: str, position: int, depth: int) -> tuple[dict[str, Any], int]:
    items: dict[str, Any] = {}
    position = skip(text, position + 1)
    while not text.startswith("}", position):
        key, position = literal_at(text, position, depth + 1)
        position = skip(text, position)
        if not isinstance(key, str) or not text.startswith(":", position):
            raise UnreadableError(f"{text[position : position + SHOWN]!r} is no key and value")
        value, position = literal_at(text, skip(text, position + 1), depth + 1)
        items[key] = value
        position = after_item(text, position, "}")
    return items, position + 1


def after_item(text: str, position: int, closing: str) -> int:
    """Past the comma, or at the closing sign.

    Raises:
        UnreadableError: neither is there.
    """
    position = skip(text, position)
    if text.startswith(",", position):
        return skip(text, position + 1)
    if not text.startswith(closing, position):
        shown = text[position : position + SHOWN]
        raise UnreadableError(f"{shown!r} stands where `,` or `{closing}` must")
    return position
