"""Attempts as a judge model reads them: JSON Lines that no agent can break out of.

A message is one line, its role the first key: `{"assistant":"…"}`. All text in it
was written by an agent or its tools. As JSON it holds no line break, so it cannot
begin a line of its own; the `<` of whatever looks like a tag of the prompt is escaped,
so it cannot end its section.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from podium.types.v1 import trajectory_pb2

Attempt = tuple[tuple[str, ...], ...]
"""An attempt's conversations, each a sequence of messages in their JSON form."""

_ROLES = {
    trajectory_pb2.ROLE_SYSTEM: "system",
    trajectory_pb2.ROLE_USER: "user",
    trajectory_pb2.ROLE_ASSISTANT: "assistant",
    trajectory_pb2.ROLE_TOOL: "tool",
}
# Other tags may stand: escaping all of a web page's would double its tokens.
_TAG = re.compile(r"<(?=[\s/]*(?:attempt|context|tools|trajectory|available_tools))", re.IGNORECASE)
_LINE_BREAKS = {ord(char): f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"}

_BYTES_PER_TOKEN = 3
"""English text has about 4 bytes a token and code or Chinese about 3 (no tokenizer is asked)."""
_LEAST_MESSAGE_BYTES = 120
_ECHO_BYTES = 200
_MOST_NESTED = 100


def to_json(value: Any) -> str:
    """`value` as one line of JSON without a tag of the prompt."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _TAG.sub(r"\\u003c", text.translate(_LINE_BREAKS))


def _refuse(_: object) -> Any:
    raise ValueError


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _refuse(pairs)


def _arguments(text: str) -> Any:
    """The arguments as a value, where that loses nothing; else the text."""
    # A policy may nest deeper than Python's stack goes.
    if text.count("{") + text.count("[") > _MOST_NESTED:
        return text
    try:
        value = json.loads(text, parse_constant=_refuse, object_pairs_hook=_unique)
        return value if isinstance(value, dict) else text
    except (ValueError, RecursionError):
        return text


def _line(message: trajectory_pb2.Message) -> str:
    shown: dict[str, Any] = {_ROLES.get(message.role, "user"): message.content}
    if message.tool_calls:
        # Ids of calls are left out: they are random and say nothing.
        shown["calls"] = [
            {"name": call.name, "arguments": _arguments(call.arguments_json)}
            for call in message.tool_calls
        ]
    if message.name:
        shown["name"] = message.name
    return to_json(shown)


def role_of(line: str) -> str:
    """The role of a message in its JSON form."""
    return line[2 : line.index('"', 2)]


def attempt_of(trajectory: trajectory_pb2.Trajectory) -> Attempt:
    """The attempt's words; two attempts are the same when these are equal.

    A conversation that another one continues word for word is only the beginning of
    that one: the sampler starts a new history where a chat template rewrites its past.
    """
    conversations: list[tuple[str, ...]] = []
    for history in trajectory.histories:
        lines = tuple(_line(message) for message in history.messages)
        continued = next(
            (n for n, each in enumerate(conversations) if lines[: len(each)] == each), None
        )
        if not lines:
            continue
        if continued is None:
            conversations.append(lines)
        else:
            conversations[continued] = lines
    return tuple(conversations)


def tools_of(trajectories: Iterable[trajectory_pb2.Trajectory]) -> tuple[str, ...]:
    """The tools that were on offer, one line each, by name."""
    shown: dict[str, str] = {}
    for trajectory in trajectories:
        for history in trajectory.histories:
            for tool in history.tools:
                if tool.name not in shown:
                    shown[tool.name] = to_json(_tool(tool))
    return tuple(shown[name] for name in sorted(shown))


def _tool(tool: trajectory_pb2.Tool) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": tool.name, "description": tool.description}
    # Access by key would add the key to the caller's message.
    if properties := tool.parameters.fields.get("properties"):
        shown["parameters"] = sorted(properties.struct_value.fields)
    return shown


def common_prefix(attempts: Sequence[Attempt]) -> int:
    """How many leading messages of the first conversation all attempts share.

    A single attempt shares none: nothing is saved by taking it apart.
    """
    return _shared([attempt[0] for attempt in attempts]) if len(attempts) > 1 else 0


def _shared(conversations: Sequence[Sequence[str]]) -> int:
    shared = 0
    for column in zip(*conversations, strict=False):
        if len(set(column)) > 1:
            break
        shared += 1
    return shared


def show(attempt: Attempt, shared: int) -> list[str]:
    """The attempt's lines without its first `shared` messages, its conversations numbered.

    An attempt that ends with those messages shows the start and end of the last of them
    again, so that it is judged on what it said. A conversation that begins as an earlier
    one says so.
    """
    lines = list(attempt[0][shared:])
    if not lines:
        lines = ["[ends with the context:]", _cut_line(attempt[0][-1], _ECHO_BYTES)]
    if len(attempt) == 1:
        return lines
    lines.insert(0, f"[conversation 1 of {len(attempt)}]")
    for number, conversation in enumerate(attempt[1:], start=1):
        overlaps = [_shared([conversation, earlier]) for earlier in attempt[:number]]
        longest = max(overlaps)
        begins = ""
        if longest:
            source = overlaps.index(longest) + 1
            begins = f", begins with messages 1 to {longest} of conversation {source}"
        lines.append(f"[conversation {number + 1} of {len(attempt)}{begins}]")
        lines += conversation[longest:]
    return lines


def tokens_of(text: str) -> int:
    """About how many tokens a text has; more than most tokenizers make of it."""
    return -(-len(text.encode()) // _BYTES_PER_TOKEN)


def _bytes(lines: Iterable[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def _cut(text: str, limit: int) -> str:
    data = text.encode()
    if len(data) <= limit:
        return text
    half = limit // 2
    start = data[:half].decode(errors="ignore")
    end = data[len(data) - half :].decode(errors="ignore")
    return f"{start} [{len(data) - 2 * half} bytes left out] {end}"


def _cut_value(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        return _cut(value, limit)
    if isinstance(value, dict):
        return {key: _cut_value(inner, limit) for key, inner in value.items()}
    if isinstance(value, list):
        return [_cut_value(inner, limit) for inner in value]
    return value


def _cut_line(line: str, limit: int) -> str:
    if len(line.encode()) <= limit:
        return line
    shorter = to_json(_cut_value(json.loads(line), limit // 2))
    # Many short values, or a long key: no text in it is worth more than the others.
    return (
        shorter
        if len(shorter.encode()) <= limit
        else to_json({role_of(line): _cut(line, limit // 2)})
    )


def shorten(lines: Sequence[str], tokens: int) -> tuple[list[str], int]:
    """`lines` within about `tokens`, and how many bytes that left out.

    First long messages lose their middle, then the sequence loses its own: the start
    says what was tried, the end what came of it.
    """
    limit = tokens * _BYTES_PER_TOKEN
    total = _bytes(lines)
    if total <= limit:
        return list(lines), 0
    longest = max(_LEAST_MESSAGE_BYTES, limit // 4)
    cut = [_cut_line(line, longest) if line.startswith("{") else line for line in lines]
    start: list[str] = []
    end: list[str] = []
    left = limit
    first, last = 0, len(cut) - 1
    while first <= last:
        from_end = len(end) <= len(start)
        line = cut[last] if from_end else cut[first]
        left -= len(line.encode()) + 1
        if left < 0 and end:
            break
        if from_end:
            end.insert(0, line)
            last -= 1
        else:
            start.append(line)
            first += 1
    kept = [*start, *end]
    left_out = total - _bytes(kept)
    if first <= last:
        kept = [*start, f"[{last - first + 1} lines left out]", *end]
    return kept, max(0, left_out)
