"""Formats whose calls are JSON objects or lists of them, after a sign or as the whole reply."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from podium.core.tool_formats.argument_types import Types
from podium.core.tool_formats.reading import (
    Call,
    ParsedReply,
    UnreadableError,
    cut,
    json_at,
    named,
    written,
)
from podium.core.tool_formats.values import skip

_TEXT_CALL = re.compile(r"^[ \t]*call:[ \t]*([\w.-]*)[ \t]*", re.MULTILINE)
_LLAMA_CALL = re.compile(r'\{\s*"(?:name|type)"\s*:')
_BETWEEN = re.compile(r"[\s;]*")


def _one(value: Any) -> list[Call]:
    return [named(value, "name", "arguments", "parameters")]


def _each(value: Any) -> list[Call]:
    return [named(one, "name", "arguments", "parameters") for one in _listed(value)]


def _coheres(value: Any) -> list[Call]:
    return [named(one, "tool_name", "parameters", id_key="tool_call_id") for one in _listed(value)]


def _by_name(value: Any) -> list[Call]:
    """`[{"NAME": {…}}, …]`."""
    found = []
    for one in _listed(value):
        if not isinstance(one, dict) or len(one) != 1:
            raise UnreadableError("it is no object of one name")
        ((name, arguments),) = one.items()
        found.append(Call(name, written(arguments)))
    return found


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise UnreadableError("it is no list of calls")
    return value


@dataclass(frozen=True)
class Tagged:
    """JSON between two signs, of which the second may lack."""

    opening: str
    """A regular expression, as `closing` and `dropped`."""
    closing: str
    calls: Callable[[Any], list[Call]] = _each
    dropped: str = ""
    """Signs around words, which are no part of them."""
    strict: bool = True
    """Whether only the closing sign, or the reply's end, may follow."""

    def __call__(self, reply: str, _: Types) -> ParsedReply:
        """See `FORMATS`."""
        if self.dropped:
            reply = re.sub(self.dropped, "", reply)
        return cut(reply, re.compile(self.opening), self._read)

    def _read(self, reply: str, match: re.Match[str]) -> tuple[list[Call], int]:
        value, position = json_at(reply, skip(reply, match.end()))
        end = skip(reply, position)
        if closing := re.compile(self.closing).match(reply, end):
            end = closing.end()
        elif self.strict and end < len(reply):
            raise UnreadableError("something follows its JSON")
        return self.calls(value), end


HERMES = Tagged("<tool_call>", "</tool_call>", _one)
"""`<tool_call>{"name": …, "arguments": {…}}</tool_call>`.

Nous Research's Hermes 2 Pro, Qwen2.5 and Qwen3, SmolLM3, Granite 4, ERNIE 4.5 (their chat
templates)."""

LONGCAT = Tagged("<longcat_tool_call>", "</longcat_tool_call>", _one)
"""Meituan's LongCat Flash: as Hermes, in signs of its own."""

GRANITE = Tagged(r"<\|tool_call\|>|<tool_call>(?=\s*\[)", "$^", strict=False)
"""`<|tool_call|>[{"name": …, "arguments": {…}}, …]`; IBM's Granite 3, from 3.1 on `<tool_call>`."""

PHI4_MINI = Tagged(
    r"functools(?=\s*\[)|<\|tool_call\|>(?=(?s:.*)<\|/tool_call\|>)",
    r"<\|/tool_call\|>",
    strict=False,
)
"""`functools[{"name": …, "arguments": {…}}, …]`, or the list between `<|tool_call|>` and
`<|/tool_call|>`; Microsoft's Phi-4-mini."""

JAMBA = Tagged("<tool_calls>", "</tool_calls>")
"""`<tool_calls>[{"name": …, "arguments": {…}}, …]</tool_calls>`; Jamba 1.5, Hunyuan A13B."""

INTERNLM = Tagged(r"<\|action_start\|>\s*<\|plugin\|>", r"<\|action_end\|>", _one)
"""`<|action_start|><|plugin|>{"name": …, "parameters": {…}}<|action_end|>`; InternLM 2.5."""

APERTUS = Tagged(r"<\|tools_prefix\|>", r"<\|tools_suffix\|>", _by_name)
"""`<|tools_prefix|>[{"NAME": {…}}, …]<|tools_suffix|>`; Apertus."""

COHERE = Tagged(
    r"<\|START_ACTION\|>",
    r"<\|END_ACTION\|>",
    _coheres,
    r"<\|(?:START|END)_(?:RESPONSE|TEXT)\|>",
)
"""`<|START_ACTION|>[{"tool_call_id": "0", "tool_name": …, "parameters": {…}}]<|END_ACTION|>`;
Command R7B and Command A."""


def text(reply: str, _: Types) -> ParsedReply:
    """`call: NAME {"argument": "value"}` at the start of a line: Podium's own, for any model.

    The arguments may go over several lines; without any, the call has none.
    """
    return cut(reply, _TEXT_CALL, _text_call)


def _text_call(reply: str, match: re.Match[str]) -> tuple[list[Call], int]:
    if not match[1]:
        raise UnreadableError("it names no tool")
    if reply[match.end() : match.end() + 1] in ("", "\n", "\r"):
        return [Call(match[1], "{}")], match.end()
    value, end = json_at(reply, match.end())
    if not isinstance(value, dict):
        raise UnreadableError("its arguments are no JSON object")
    return [Call(match[1], reply[match.end() : end])], end


def llama3_json(reply: str, _: Types) -> ParsedReply:
    """`{"name": …, "parameters": {…}}` as the whole reply, several divided by `;`.

    Llama 3.1 to 3.3 (Meta's model cards, "JSON based tool calling"), with or without
    `<|python_tag|>` before it.
    """
    body = reply.strip()
    tagged = body.startswith("<|python_tag|>")
    body = body.removeprefix("<|python_tag|>").strip()
    if not tagged and not _LLAMA_CALL.match(body):
        return ParsedReply(body)
    found = ParsedReply()
    position = 0
    while position < len(body):
        try:
            value, position = json_at(body, position)
            found.calls.append(named(value, "name", "parameters", "arguments"))
        except UnreadableError as error:
            return ParsedReply(body, found.calls, [str(error)])
        position = _BETWEEN.match(body, position).end()  # type: ignore[union-attr]
    return found
