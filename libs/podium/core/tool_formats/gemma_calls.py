"""Google's formats: `call:NAME{key:value}`, whose strings stand between a token of their own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from podium.core.tool_formats.argument_types import Types
from podium.core.tool_formats.reading import SHOWN, Call, ParsedReply, UnreadableError, cut, written
from podium.core.tool_formats.values import after_item, literal_at, skip

_KEY = re.compile(r"([^:{}\[\],]+):")
_BARE = re.compile(r"[^,{}\[\]]+")
_MOST_DEPTH = 64


@dataclass(frozen=True)
class Braces:
    """How one family writes a call."""

    opening: str
    closing: str
    quote: str

    def __call__(self, reply: str, types: Types) -> ParsedReply:
        """See `FORMATS`."""
        sign = re.compile(rf"{re.escape(self.opening)}\s*call:\s*([\w.:/-]*)\s*(?=\{{)")

        def read(reply: str, match: re.Match[str]) -> tuple[list[Call], int]:
            arguments, end = self._value(reply, match.end(), 0)
            end = skip(reply, end)
            if reply.startswith(self.closing, end):
                end += len(self.closing)
            elif end < len(reply):
                raise UnreadableError(f"{reply[end : end + SHOWN]!r} follows its arguments")
            return [Call(match[1], written(arguments))], end

        return cut(reply, sign, read)

    def _value(self, text: str, position: int, depth: int) -> tuple[Any, int]:
        if depth > _MOST_DEPTH:
            raise UnreadableError("its arguments are nested too deep")
        if text.startswith(self.quote, position):
            start = position + len(self.quote)
            end = text.find(self.quote, start)
            if end < 0:
                raise UnreadableError(f"{text[position : position + SHOWN]!r} does not end")
            return text[start:end], end + len(self.quote)
        if text.startswith("{", position):
            return self._object(text, position, depth)
        if text.startswith("[", position):
            return self._list(text, position, depth)
        return _bare(text, position)

    def _object(self, text: str, position: int, depth: int) -> tuple[dict[str, Any], int]:
        items: dict[str, Any] = {}
        position = skip(text, position + 1)
        while not text.startswith("}", position):
            if text.startswith(self.quote, position):
                key, position = self._value(text, position, depth + 1)
                position = skip(text, position) + 1
            elif found := _KEY.match(text, position):
                key, position = found[1].strip(), found.end()
            else:
                raise UnreadableError(f"{text[position : position + SHOWN]!r} is no argument")
            items[key], position = self._value(text, skip(text, position), depth + 1)
            position = after_item(text, position, "}")
        return items, position + 1

    def _list(self, text: str, position: int, depth: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        position = skip(text, position + 1)
        while not text.startswith("]", position):
            value, position = self._value(text, position, depth + 1)
            items.append(value)
            position = after_item(text, position, "]")
        return items, position + 1


def _bare(text: str, position: int) -> tuple[Any, int]:
    found = _BARE.match(text, position)
    if found is None:
        raise UnreadableError(f"{text[position : position + SHOWN]!r} is no value")
    bare = found[0].strip()
    try:
        value, end = literal_at(bare, 0)
    except UnreadableError:
        return bare, found.end()
    return (value if end == len(bare) else bare), found.end()


GEMMA4 = Braces("<|tool_call>", "<tool_call|>", '<|"|>')
"""`<|tool_call>call:NAME{key:<|"|>value<|"|>,n:1}<tool_call|>`; Gemma 4."""

FUNCTIONGEMMA = Braces("<start_function_call>", "<end_function_call>", "<escape>")
"""`<start_function_call>call:NAME{key:<escape>value<escape>}<end_function_call>`; FunctionGemma."""
