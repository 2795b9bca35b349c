"""What is said, on spans: off unless whoever runs a service asks for it.

`OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` is OpenTelemetry's variable for it. The
JSON is that of the GenAI conventions, which Langfuse and others show as a conversation. It is
cut to a bound, and whole JSON still.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

from podium.core.errors import InvalidArgumentError, Violation
from podium.types.v1 import trajectory_pb2 as pb

VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
MAX_BYTES: Final = 16 * 1024
"""Of an attribute, in UTF-8."""

_ON: Final = frozenset({"true", "span_only", "span_and_event"})
_OFF: Final = frozenset({"", "false", "no_content"})
_MARK: Final = "…"
_ROOM: Final = 256
"""For the mark, and for the brackets of what is cut."""


def wanted() -> bool:
    """Whether spans may tell what was said."""
    # Asked twice a turn: a lookup of what is not there raises inside, which is dear.
    return VARIABLE in os.environ and os.environ[VARIABLE].strip().lower() in _ON


def check() -> None:
    """Refuses a value that says neither.

    Raises:
        InvalidArgumentError: naming the variable.
    """
    value = os.environ.get(VARIABLE, "").strip()
    if value.lower() not in _ON | _OFF:
        allowed = "true, false, SPAN_ONLY, SPAN_AND_EVENT, NO_CONTENT (there are no events here)"
        raise InvalidArgumentError(
            violations=[Violation(VARIABLE, f"got {value!r}; allowed are {allowed}")]
        )


def messages(said: Sequence[pb.Message], finish_reason: str = "") -> str:
    """Messages as the conventions' JSON: the newest that fit, each cut to what is left."""
    left = MAX_BYTES - _ROOM
    kept: list[str] = []
    for message in reversed(said):
        text = _fitting(_message(message, finish_reason), left)
        if not text:
            break
        left -= len(text.encode()) + 2
        kept.append(text)
    if missing := len(said) - len(kept):
        told = f"{_MARK} {missing} earlier messages are left out"
        kept.append(_json({"role": "system", "parts": [{"type": "text", "content": told}]}))
    return f"[{', '.join(reversed(kept))}]"


def tools(offered: Iterable[pb.Tool]) -> str:
    """Tools as the conventions' JSON: the first that fit."""
    left = MAX_BYTES - _ROOM
    kept: list[str] = []
    for tool in offered:
        text = _json({"type": "function", "name": tool.name, "description": tool.description})
        left -= len(text.encode()) + 2
        if left < 0:
            break
        kept.append(text)
    return f"[{', '.join(kept)}]"


def cut(text: str, most: int = MAX_BYTES) -> str:
    """Text of at most so many bytes; what was cut ends with a mark."""
    raw = text.encode(errors="replace")
    if len(raw) <= most:
        return raw.decode()
    end = most - len(_MARK.encode())
    if end < 0:
        return ""
    return raw[:end].decode(errors="ignore") + _MARK


def _message(message: pb.Message, finish_reason: str) -> dict[str, Any]:
    role = pb.Role.Name(message.role).removeprefix("ROLE_").lower()
    parts: list[dict[str, Any]] = []
    if message.reasoning:
        parts.append({"type": "reasoning", "content": message.reasoning})
    if message.role == pb.ROLE_TOOL:
        parts.append(
            {
                "type": "tool_call_response",
                "id": message.tool_call_id,
                "response": message.content,
            }
        )
    elif message.content or not (message.reasoning or message.tool_calls):
        parts.append({"type": "text", "content": message.content})
    for call in message.tool_calls:
        parts.append(
            {
                "type": "tool_call",
                "id": call.id,
                "name": call.name,
                "arguments": call.arguments_json,
            }
        )
    made: dict[str, Any] = {"role": role, "parts": parts}
    if finish_reason:
        made["finish_reason"] = finish_reason
    return made


def _fitting(message: dict[str, Any], most: int) -> str:
    """A message's JSON in at most so many bytes; empty where not even its outline fits."""
    text = _json(message)
    # Thoughts are the first to be cut: what was said tells more.
    thoughts = [part for part in message["parts"] if part["type"] == "reasoning"]
    others = [part for part in message["parts"] if part["type"] != "reasoning"]
    for part in (*thoughts, *reversed(others)):
        for name in ("content", "response", "arguments"):
            while (over := len(text.encode()) - most) > 0 and part.get(name):
                # Its size in JSON, where a letter may be escaped, and the share that may stay.
                size = len(_json(part[name]).encode())
                stays = len(part[name].encode()) * max(0, size - over) // size
                part[name] = cut(part[name], stays - 1)
                text = _json(message)
    return text if len(text.encode()) <= most else ""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
