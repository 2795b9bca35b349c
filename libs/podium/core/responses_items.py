"""Items of OpenAI's Responses API in the form of chat completions' messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def as_chat(items: Iterable[Any]) -> list[dict[str, Any]]:
    """The `input` of a request as messages; never raises.

    What was said in one turn are several items there, and one message here: thoughts, words, and
    each call. What is neither words, thoughts, a call nor its result is left out.
    """
    messages: list[dict[str, Any]] = []
    thoughts: str | None = None
    goes_on = False
    for item in items:
        if not isinstance(item, Mapping):
            continue
        kind = item.get("type", "message")
        if kind == "reasoning":
            thoughts, goes_on = _thoughts(item), False
            continue
        if kind in ("function_call", "custom_tool_call"):
            if not goes_on:
                messages.append({"role": "assistant", "content": None})
            messages[-1].setdefault("tool_calls", []).append(_call(item))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            result = {"content": item.get("output"), "tool_call_id": item.get("call_id")}
            messages.append({"role": "tool", **result})
        elif kind == "message" or "role" in item:
            messages.append({"role": item.get("role"), "content": item.get("content")})
        else:
            continue
        goes_on = messages[-1].get("role") == "assistant"
        if goes_on and thoughts is not None:
            messages[-1]["reasoning"] = thoughts
        thoughts = None
    return messages


def _call(item: Mapping[str, Any]) -> dict[str, Any]:
    arguments = item.get("arguments", item.get("input"))
    function = {"name": item.get("name"), "arguments": arguments}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _thoughts(item: Mapping[str, Any]) -> str | None:
    """As they were thought, else as they were told in short; None where both are hidden."""
    for name in ("content", "summary"):
        parts = item.get(name)
        texts = [
            part["text"]
            for part in (parts if isinstance(parts, list) else ())
            if isinstance(part, Mapping) and isinstance(part.get("text"), str)
        ]
        if texts:
            return "\n".join(texts)
    return None
