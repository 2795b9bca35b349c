"""Messages compared by what they say, as clients send them back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from podium.types.v1 import trajectory_pb2 as pb

Words = tuple[object, ...]

_THOUGHT = re.compile(r"\A.*?</think>", re.DOTALL)


def words(messages: Iterable[pb.Message]) -> list[Words]:
    """What identifies a conversation to the letter: roles, contents, calls without their ids."""
    return [
        (
            message.role,
            message.content,
            message.name,
            tuple((call.name, call.arguments_json) for call in message.tool_calls),
        )
        for message in messages
    ]


def gist(messages: Iterable[pb.Message]) -> list[Words]:
    """What is left of it however an agent's framework keeps it.

    Without space at the ends, an assistant's thoughts, text beside its calls, and the layout
    of their arguments.
    """
    return [_gist(message) for message in messages]


def _gist(message: pb.Message) -> Words:
    calls = tuple((call.name, _plain(call.arguments_json)) for call in message.tool_calls)
    content = message.content
    if message.role == pb.ROLE_ASSISTANT:
        content = "" if calls else _THOUGHT.sub("", content)
    return message.role, content.strip(), calls


def _plain(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
