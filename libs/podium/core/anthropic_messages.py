"""Requests of Anthropic's Messages API in the form of OpenAI's chat completions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

PATH = "/v1/messages"


def as_chat(body: Mapping[str, Any]) -> dict[str, Any]:
    """A request's body, its `messages` and `tools` as chat completions have them; never raises.

    `system` becomes the first message, `tool_use` a call, `tool_result` a message of the role
    `tool`. What the model thought before is left out, as templates leave it out.
    """
    messages = []
    if system := body.get("system"):
        messages.append({"role": "system", "content": system})
    listed = body.get("messages")
    for message in listed if isinstance(listed, list) else ():
        if isinstance(message, Mapping):
            messages += _messages(message)
    tools = body.get("tools")
    return {
        **body,
        "messages": messages,
        "tools": [_tool(tool) for tool in tools if isinstance(tool, Mapping)]
        if isinstance(tools, list)
        else [],
    }


def _messages(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One message here may be several there: each result is one of its own."""
    content = message.get("content")
    role = message.get("role")
    if not isinstance(content, list):
        yield {"role": role, "content": content}
        return
    parts: list[Any] = []
    calls = []
    for block in content:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "tool_use":
            calls.append(_call(block))
        elif kind == "tool_result":
            if parts:
                yield {"role": role, "content": parts}
                parts = []
            result = block.get("content")
            yield {"role": "tool", "content": result, "tool_call_id": block.get("tool_use_id")}
        elif kind not in ("thinking", "redacted_thinking"):
            parts.append(block)
    if parts or calls:
        yield {"role": role, "content": parts, **({"tool_calls": calls} if calls else {})}


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(block.get("input") or {}, default=str)
    return {
        "id": block.get("id"),
        "type": "function",
        "function": {"name": block.get("name"), "arguments": arguments},
    }


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": tool.get("input_schema"),
    }
    return {"type": "function", "function": function}
