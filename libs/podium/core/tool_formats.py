"""How model families write tool calls: one pure function a format.

Each takes a whole reply. What it cannot read stays in the content and is told in
`malformed`, in words for the model; nothing raises.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from podium.core.outside import MOST_NAME_CHARS


class _UnreadableError(ValueError):
    """Says what is wrong with a call."""


@dataclass(frozen=True)
class Call:
    """A call as it was written; `id` is empty where the format has none."""

    name: str
    arguments_json: str
    id: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise _UnreadableError("it has no name")
        if max(len(self.name), len(self.id)) > MOST_NAME_CHARS:
            raise _UnreadableError(f"its name or id is longer than {MOST_NAME_CHARS} characters")
        _check_numbers(self.arguments_json)


@dataclass
class ParsedReply:
    """A reply, taken apart."""

    content: str = ""
    calls: list[Call] = field(default_factory=list)
    malformed: list[str] = field(default_factory=list)


TEXT = "text"
_SHOWN = 80


def _no_constant(name: str) -> NoReturn:
    raise _UnreadableError(f"{name} is no JSON number")


def _real(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _UnreadableError(f"{digits[:_SHOWN]} is too great a number")
    return number


def _check_numbers(arguments: str) -> None:
    """Of arguments that are JSON; some formats hand on what is none."""
    try:
        json.loads(arguments, parse_constant=_no_constant, parse_float=_real)
    except _UnreadableError:
        raise
    except (ValueError, RecursionError):
        pass


# Python reads NaN, and 1e999 as infinity; tools that are given them as JSON again cannot.
_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_float=_real)


def text(reply: str) -> ParsedReply:
    """`call: NAME {"argument": "value"}` at the start of a line: Podium's own, for any model.

    The arguments may go over several lines; without any, the call has none.
    """
    return _cut(reply, _TEXT_CALL, _text_call)


def hermes(reply: str) -> ParsedReply:
    """`<tool_call>{"name": …, "arguments": {…}}</tool_call>`.

    Nous Research's Hermes 2 Pro; Qwen2.5 and Qwen3 (their chat templates).
    """

    def read(_: str, match: re.Match[str]) -> tuple[Call, int]:
        return _named(_loads(match[1]), "arguments"), match.end()

    return _cut(reply, _HERMES_CALL, read)


def llama3_json(reply: str) -> ParsedReply:
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
            value, position = _json_at(body, position)
            found.calls.append(_named(value, "parameters", "arguments"))
        except _UnreadableError as error:
            return ParsedReply(body, found.calls, [str(error)])
        position = _BETWEEN.match(body, position).end()  # type: ignore[union-attr]
    return found


def mistral(reply: str) -> ParsedReply:
    """`[TOOL_CALLS][{"name": …, "arguments": {…}}, …]`, or `[TOOL_CALLS]name[ARGS]{…}` each.

    mistral-common: the list up to tokenizer v7, the other from v11 on.
    """
    content, tag, body = reply.partition("[TOOL_CALLS]")
    found = ParsedReply(content.strip())
    for part in body.split("[TOOL_CALLS]") if tag else ():
        try:
            found.calls += _mistral_calls(part.strip())
        except _UnreadableError as error:
            found.malformed.append(str(error))
            found.content = f"{found.content}\n{tag}{part.strip()}".strip()
    return found


def kimi_k2(reply: str) -> ParsedReply:
    """`<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`.

    Moonshot's Kimi K2 ("Tool calling guidance" in its repository). The id is the model's.
    """

    def read(_: str, match: re.Match[str]) -> tuple[Call, int]:
        call_id, sign, arguments = match[1].partition("<|tool_call_argument_begin|>")
        call_id = call_id.strip()
        name = call_id.partition(":")[0].removeprefix("functions.")
        if not sign or not name:
            raise _UnreadableError("it has no function and arguments")
        return Call(name, arguments.strip(), call_id), match.end()

    return _cut(_KIMI_SECTION.sub("", reply), _KIMI_CALL, read)


def deepseek_v3(reply: str) -> ParsedReply:
    """`<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>`.

    DeepSeek V3.1; V3 and R1 write `function<｜tool▁sep｜>NAME` and the arguments as a block of
    JSON in Markdown (their chat templates).
    """

    def read(_: str, match: re.Match[str]) -> tuple[Call, int]:
        first, sign, rest = match[1].partition("<｜tool▁sep｜>")
        block = _DEEPSEEK_BLOCK.fullmatch(rest.strip())
        name, arguments = (block[1], block[2]) if block else (first, rest)
        if not sign or not name.strip():
            raise _UnreadableError("it has no function and arguments")
        return Call(name.strip(), arguments.strip()), match.end()

    return _cut(_DEEPSEEK_SECTION.sub("", reply), _DEEPSEEK_CALL, read)


FORMATS: Mapping[str, Callable[[str], ParsedReply]] = {
    TEXT: text,
    "hermes": hermes,
    "llama3_json": llama3_json,
    "mistral": mistral,
    "kimi_k2": kimi_k2,
    "deepseek_v3": deepseek_v3,
}
"""By name; those that vLLM's parsers have too bear its names."""

SPECIAL = frozenset({"llama3_json", "mistral", "kimi_k2", "deepseek_v3"})
"""Formats whose signs are special tokens, which decoding leaves out unless told otherwise."""

_TEXT_CALL = re.compile(r"^[ \t]*call:[ \t]*([\w.-]*)[ \t]*", re.MULTILINE)
_HERMES_CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|$)", re.DOTALL)
_LLAMA_CALL = re.compile(r'\{\s*"(?:name|type)"\s*:')
_BETWEEN = re.compile(r"[\s;]*")
_MISTRAL_CALL = re.compile(r"\s*([\w.-]+)(?:\[CALL_ID\](\w+))?(?:\[ARGS\])?\s*(?=\{)")
_KIMI_SECTION = re.compile(r"<\|tool_calls_section_(?:begin|end)\|>")
_KIMI_CALL = re.compile(r"<\|tool_call_begin\|>(.*?)(?:<\|tool_call_end\|>|$)", re.DOTALL)
_DEEPSEEK_SECTION = re.compile("<｜tool▁calls▁(?:begin|end)｜>")
_DEEPSEEK_CALL = re.compile("<｜tool▁call▁begin｜>(.*?)(?:<｜tool▁call▁end｜>|$)", re.DOTALL)
_DEEPSEEK_BLOCK = re.compile(r"([^\n]+)\n```json\n(.*?)\n?```", re.DOTALL)


def _cut(
    reply: str,
    pattern: re.Pattern[str],
    read: Callable[[str, re.Match[str]], tuple[Call, int]],
) -> ParsedReply:
    """Takes the calls that begin where `pattern` matches out of the reply."""
    found, content, position = ParsedReply(), "", 0
    while match := pattern.search(reply, position):
        content += reply[position : match.start()]
        try:
            call, position = read(reply, match)
            found.calls.append(call)
        except _UnreadableError as error:
            found.malformed.append(str(error))
            content += match[0]
            position = match.end()
    found.content = (content + reply[position:]).strip()
    return found


def _text_call(reply: str, match: re.Match[str]) -> tuple[Call, int]:
    if not match[1]:
        raise _UnreadableError("it names no tool")
    if reply[match.end() : match.end() + 1] in ("", "\n", "\r"):
        return Call(match[1], "{}"), match.end()
    value, end = _json_at(reply, match.end())
    if not isinstance(value, dict):
        raise _UnreadableError("its arguments are no JSON object")
    return Call(match[1], reply[match.end() : end]), end


def _mistral_calls(part: str) -> list[Call]:
    if part.startswith("["):
        values, end = _json_at(part, 0)
        if part[end:].strip():
            raise _UnreadableError("something follows the list of calls")
        return [_named(value, "arguments") for value in values]
    match = _MISTRAL_CALL.match(part)
    if match is None:
        raise _UnreadableError("it has no function and arguments")
    _, end = _json_at(part, match.end())
    if part[end:].strip():
        raise _UnreadableError("something follows its arguments")
    return [Call(match[1], part[match.end() : end], match[2] or "")]


def _named(value: Any, *keys: str) -> Call:
    """A call from its JSON object; `keys` may hold the arguments."""
    if not isinstance(value, dict):
        raise _UnreadableError("it is no JSON object")
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise _UnreadableError("it has no name")
    arguments: Any = next((value[key] for key in keys if key in value), {})
    try:
        encoded = arguments if isinstance(arguments, str) else json.dumps(arguments)
    except (ValueError, RecursionError):
        raise _UnreadableError("its arguments are nested too deep") from None
    call_id = value.get("id")
    return Call(name, encoded, call_id if isinstance(call_id, str) else "")


def _loads(text_: str) -> Any:
    value, end = _json_at(text_, 0)
    if text_[end:].strip():
        raise _UnreadableError("something follows its JSON")
    return value


def _json_at(text_: str, position: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text_, position)
    except _UnreadableError:
        raise
    except RecursionError:
        raise _UnreadableError("its JSON is nested too deep") from None
    except ValueError as error:
        # Without a message of the parser's: Python reads no longer integers.
        why = getattr(error, "msg", "a number has too many digits")
        shown = text_[position : position + _SHOWN]
        raise _UnreadableError(f"{shown!r} is no JSON: {why}") from None
