"""Tools for a model whose chat template has none: described, called and answered as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from podium.core.outside import plain_of
from podium.types.v1 import trajectory_pb2 as pb

INSTRUCTION = (
    "You can call tools. Write each call on a line of its own, as in\n"
    'call: NAME {"argument": "value"}\n'
    "and wait for the results. The tools, with JSON Schemas of their arguments:"
)


def as_text(
    messages: Sequence[pb.Message], described: str, covered: int = 0
) -> tuple[list[pb.Message], int]:
    """The conversation without tools, and how many of its messages stand for the first `covered`.

    The system message, which is added if there is none, describes the tools; calls are
    lines of text; results are a user's messages. Neighbouring messages of the user become
    one where a result is among them, as many templates demand turns.

    Args:
        described: what `describe` says of the tools.
    """
    calls = _places(messages)
    first = _merged([_plain(message, calls) for message in messages[:covered]])
    rest = _merged([_plain(message, calls) for message in messages[covered:]])
    whole = [*first, *rest]
    if whole and whole[0].role == pb.ROLE_SYSTEM:
        whole[0].content = f"{whole[0].content}\n\n{described}"
        return whole, len(first)
    whole.insert(0, pb.Message(role=pb.ROLE_SYSTEM, content=described))
    return whole, len(first) + bool(covered)


def describe(tools: Sequence[pb.Tool]) -> str:
    """What the model is told of the tools."""
    lines = [INSTRUCTION]
    for tool in tools:
        schema = json.dumps(plain_of(tool.parameters), sort_keys=True)
        lines.append(f"{tool.name}: {tool.description}\n  {schema}")
    return "\n".join(lines)


def _places(messages: Sequence[pb.Message]) -> Mapping[str, str]:
    """What a result is said to be of, by the id of its call."""
    found: dict[str, str] = {}
    for message in messages:
        for number, call in enumerate(message.tool_calls, 1):
            several = f" (call {number})" if len(message.tool_calls) > 1 else ""
            found[call.id] = f"{call.name}{several}"
    return found


def _plain(message: pb.Message, calls: Mapping[str, str]) -> pb.Message:
    plain = pb.Message(role=message.role, content=message.content)
    if message.HasField("reasoning"):
        plain.reasoning = message.reasoning
    if message.role == pb.ROLE_TOOL:
        plain.role = pb.ROLE_USER
        # Kept until the merge: it tells a result from a user's own words.
        plain.name = calls.get(message.tool_call_id, message.name)
        plain.content = f"result of {plain.name}:\n{message.content}"
    lines = [f"call: {call.name} {call.arguments_json}" for call in message.tool_calls]
    plain.content = "\n".join(filter(None, [plain.content, *lines]))
    return plain


def _merged(messages: Sequence[pb.Message]) -> list[pb.Message]:
    found: list[pb.Message] = []
    for message in messages:
        last = found[-1] if found else None
        both = last is not None and last.role == message.role == pb.ROLE_USER
        if last is not None and both and (last.name or message.name):
            last.content = f"{last.content}\n{message.content}"
            last.name = last.name or message.name
        else:
            found.append(message)
    for message in found:
        message.ClearField("name")
    return found
