"""Formats that divide a call's name from its JSON arguments by special tokens."""

from __future__ import annotations

import re
from collections.abc import Callable

from podium.core.tool_formats.argument_types import Types
from podium.core.tool_formats.reading import Call, ParsedReply, UnreadableError, cut, json_at, named

_MISTRAL_CALL = re.compile(r"\s*([\w.-]+)(?:\[CALL_ID\](\w+))?(?:\[ARGS\])?\s*(?=\{)")
_KIMI_SECTION = re.compile(r"<\|tool_calls_section_(?:begin|end)\|>")
_KIMI_CALL = re.compile(r"<\|tool_call_begin\|>(.*?)(?:<\|tool_call_end\|>|$)", re.DOTALL)
_DEEPSEEK_SECTION = re.compile("<｜tool▁calls▁(?:begin|end)｜>")
_DEEPSEEK_CALL = re.compile("<｜tool▁call▁begin｜>(.*?)(?:<｜tool▁call▁end｜>|$)", re.DOTALL)
_DEEPSEEK_BLOCK = re.compile(r"([^\n]+)\n```json\n(.*?)\n?```", re.DOTALL)


def mistral(reply: str, _: Types) -> ParsedReply:
    """`[TOOL_CALLS][{"name": …, "arguments": {…}}, …]`, or `[TOOL_CALLS]name[ARGS]{…}` each.

    mistral-common: the list up to tokenizer v7, the other from v11 on.
    """
    content, tag, body = reply.partition("[TOOL_CALLS]")
    found = ParsedReply(content.strip())
    for part in body.split("[TOOL_CALLS]") if tag else ():
        try:
            found.calls += _mistral_calls(part.strip())
        except UnreadableError as error:
            found.malformed.append(str(error))
            found.content = f"{found.content}\n{tag}{part.strip()}".strip()
    return found


def _mistral_calls(part: str) -> list[Call]:
    if part.startswith("["):
        values, end = json_at(part, 0)
        if part[end:].strip():
            raise UnreadableError("something follows the list of calls")
        return [named(value, "name", "arguments") for value in values]
    match = _MISTRAL_CALL.match(part)
    if match is None:
        raise UnreadableError("it has no function and arguments")
    _, end = json_at(part, match.end())
    if part[end:].strip():
        raise UnreadableError("something follows its arguments")
    return [Call(match[1], part[match.end() : end], match[2] or "")]


def kimi_k2(reply: str, _: Types) -> ParsedReply:
    """`<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`.

    Moonshot's Kimi K2 ("Tool calling guidance" in its repository). The id is the model's.
    """

    def read(_: str, match: re.Match[str]) -> tuple[list[Call], int]:
        call_id, sign, arguments = match[1].partition("<|tool_call_argument_begin|>")
        call_id = call_id.strip()
        name = call_id.partition(":")[0].removeprefix("functions.")
        if not sign or not name:
            raise UnreadableError("it has no function and arguments")
        return [Call(name, arguments.strip(), call_id)], match.end()

    return cut(_KIMI_SECTION.sub("", reply), _KIMI_CALL, read)


def _deepseek(*, blocks: bool) -> Callable[[str, Types], ParsedReply]:
    def read(_: str, match: re.Match[str]) -> tuple[list[Call], int]:
        first, sign, rest = match[1].partition("<｜tool▁sep｜>")
        block = _DEEPSEEK_BLOCK.fullmatch(rest.strip()) if blocks else None
        name, arguments = (block[1], block[2]) if block else (first, rest)
        if not sign or not name.strip():
            raise UnreadableError("it has no function and arguments")
        return [Call(name.strip(), arguments.strip())], match.end()

    return lambda reply, _: cut(_DEEPSEEK_SECTION.sub("", reply), _DEEPSEEK_CALL, read)


deepseek_v3 = _deepseek(blocks=True)
"""`<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME`, and the arguments as a block of JSON in
Markdown; DeepSeek V3 and R1 (their chat templates). V3.1's calls are read too."""

deepseek_v31 = _deepseek(blocks=False)
"""`<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>`; DeepSeek V3.1."""
