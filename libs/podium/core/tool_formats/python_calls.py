"""Formats whose calls are written as Python writes them: `[NAME(key="value"), …]`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from podium.core.tool_formats.argument_types import Types
from podium.core.tool_formats.reading import SHOWN, Call, ParsedReply, UnreadableError, cut, written
from podium.core.tool_formats.values import after_item, literal_at, skip

_NAME = re.compile(r"([A-Za-z_][\w.-]*)\s*\(\s*")
_KEY = re.compile(r"([^\W\d]\w*)\s*=\s*")
_BETWEEN = re.compile(r"[\s,]*")
_WHOLE = re.compile(r"\[\s*[A-Za-z_][\w.-]*\(")


def _calls_at(text: str, position: int) -> tuple[list[Call], int]:
    """Calls, in brackets or not, and where they end."""
    position = skip(text, position)
    bracket = text.startswith("[", position)
    position = skip(text, position + bracket)
    found: list[Call] = []
    while match := _NAME.match(text, position):
        call, position = _call(text, match)
        found.append(call)
        between = _BETWEEN.match(text, position)
        position = between.end() if between else position
    if bracket and not text.startswith("]", position):
        raise UnreadableError(f"{text[position : position + SHOWN]!r} is no call")
    if not found:
        raise UnreadableError("it calls nothing")
    return found, position + bracket


def _call(text: str, match: re.Match[str]) -> tuple[Call, int]:
    arguments: dict[str, Any] = {}
    position = match.end()
    while not text.startswith(")", position):
        key = _KEY.match(text, position)
        if key is None:
            shown = text[position : position + SHOWN]
            raise UnreadableError(f"{shown!r} is no argument with its name")
        value, position = literal_at(text, key.end())
        arguments[key[1]] = value
        position = after_item(text, position, ")")
    return Call(match[1], written(arguments)), position + 1


def _between(opening: str, closing: str) -> Callable[[str, Types], ParsedReply]:
    sign, end_sign = re.compile(re.escape(opening)), closing

    def read(reply: str, match: re.Match[str]) -> tuple[list[Call], int]:
        calls, end = _calls_at(reply, match.end())
        end = skip(reply, end)
        if reply.startswith(end_sign, end):
            return calls, end + len(end_sign)
        if end < len(reply):
            raise UnreadableError(f"{reply[end : end + SHOWN]!r} follows its calls")
        return calls, end

    return lambda reply, _: cut(reply, sign, read)


lfm2 = _between("<|tool_call_start|>", "<|tool_call_end|>")
"""`<|tool_call_start|>[NAME(key="value"), …]<|tool_call_end|>`; LiquidAI's LFM2 and LFM2.5."""

olmo3 = _between("<function_calls>", "</function_calls>")
"""`<function_calls>`, a call a line, `</function_calls>`; Ai2's OLMo 3."""


def pythonic(reply: str, _: Types) -> ParsedReply:
    """`[NAME(key="value"), …]` as the whole reply; Llama 3.2's and 4's, ToolACE."""
    body = reply.strip().removeprefix("<|python_start|>").removesuffix("<|python_end|>").strip()
    if not _WHOLE.match(body):
        return ParsedReply(body)
    try:
        calls, end = _calls_at(body, 0)
        if body[end:].strip():
            raise UnreadableError(f"{body[end : end + SHOWN]!r} follows its calls")
    except UnreadableError as error:
        return ParsedReply(body, [], [str(error)])
    return ParsedReply("", calls)
