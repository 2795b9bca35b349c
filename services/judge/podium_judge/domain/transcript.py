"""Attempts as a judge model reads them: JSON Lines that no agent can break out of.

A message is one line, its role the first key: `{"assistant":"…"}`. All text in it
was written by an agent or its tools. As JSON it holds no line break, so it cannot
begin a line of its own; the `<` of whatever looks like a tag of the prompt is escaped,
so it cannot end its section.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from podium.types.v1 import trajectory_pb2

from podium_judge.domain.trimming import cut_line, to_json

Attempt = tuple[tuple[str, ...], ...]
"""An attempt's conversations, each a sequence of messages in their JSON form."""

_ROLES = {
    trajectory_pb2.ROLE_SYSTEM: "system",
    trajectory_pb2.ROLE_USER: "user",
    trajectory_pb2.ROLE_ASSISTANT: "assistant",
    trajectory_pb2.ROLE_TOOL: "tool",
}
SHORTEST = trajectory_pb2.Trajectory(
    histories=[
        trajectory_pb2.History(messages=[trajectory_pb2.Message(role=trajectory_pb2.ROLE_USER)])
    ]
)
"""An attempt that says nothing: no other takes less to be asked about."""

_ECHO_BYTES = 200
_MOST_NESTED = 100


def _refuse(_: object) -> Any:
    raise ValueError


def _real(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _refuse(pairs)


def _arguments(text: str) -> Any:
    """The arguments as a value, where that loses nothing; else the text."""
    # A policy may nest deeper than Python's stack goes.
    if text.count("{") + text.count("[") > _MOST_NESTED:
        return text
    try:
        value = json.loads(
            text, parse_constant=_refuse, parse_float=_real, object_pairs_hook=_unique
        )
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


def attempt_of(trajectory: trajectory_pb2.Trajectory) -> Attempt:
    """The attempt's words; two attempts are the same when these are equal.

    A conversation that another one continues word for word is only the beginning of
    that one: the sampler starts a new history where a chat template rewrites its past.
    """
    return tuple(lines for lines, _ in _conversations(trajectory))


def histories_of(trajectory: trajectory_pb2.Trajectory) -> list[trajectory_pb2.History]:
    """The attempt's conversations, as `attempt_of` takes them."""
    return [history for _, history in _conversations(trajectory)]


def _conversations(
    trajectory: trajectory_pb2.Trajectory,
) -> list[tuple[tuple[str, ...], trajectory_pb2.History]]:
    found: list[tuple[tuple[str, ...], trajectory_pb2.History]] = []
    for history in trajectory.histories:
        lines = tuple(_line(message) for message in history.messages)
        continued = next(
            (n for n, (each, _) in enumerate(found) if lines[: len(each)] == each), None
        )
        if not lines:
            continue
        if continued is None:
            found.append((lines, history))
        else:
            found[continued] = (lines, history)
    return found


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
        lines = ["[ends with the context:]", cut_line(attempt[0][-1], _ECHO_BYTES)]
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
