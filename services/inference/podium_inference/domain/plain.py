"""Messages of the contract as chat templates take them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from podium.core.errors import InvalidArgumentError, Violation
from podium.core.openai_messages import to_openai
from podium.core.outside import clean_json
from podium.types.v1 import trajectory_pb2 as pb

from podium_inference.domain.continuation import THOUGHT_KEYS, Message

_ROLES = (pb.ROLE_SYSTEM, pb.ROLE_USER, pb.ROLE_ASSISTANT, pb.ROLE_TOOL)


def as_templates_take(messages: Sequence[pb.Message], *, arguments_as_text: bool) -> list[Message]:
    """The messages as chat templates take them.

    Args:
        arguments_as_text: whether calls' arguments are left as they were written.

    Raises:
        InvalidArgumentError: a role is none.
    """
    # Most templates take them apart, DeepSeek's want them as they were written.
    arguments = str if arguments_as_text else taken_apart
    result: list[Message] = []
    for index, message in enumerate(messages):
        if message.role not in _ROLES:
            raise InvalidArgumentError(
                violations=[Violation(f"messages[{index}].role", "is not a role")]
            )
        plain = to_openai(message)
        if message.HasField("reasoning"):
            plain |= dict.fromkeys(THOUGHT_KEYS, message.reasoning)
        for call in plain.get("tool_calls", ()):
            call["function"]["arguments"] = arguments(call["function"]["arguments"])
        result.append(plain)
    return result


def taken_apart(text: str) -> Any:
    """A call's arguments; the text where it is no JSON."""
    # Templates iterate over arguments, but what a model wrote need not be JSON.
    try:
        return json.loads(clean_json(text))
    except (ValueError, RecursionError):
        return text
