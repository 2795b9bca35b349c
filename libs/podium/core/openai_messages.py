"""Messages and tools of OpenAI's APIs as the contract's, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from podium.core import responses_items
from podium.core.outside import clean, clean_json, name_of, plain_of, struct_of
from podium.types.v1 import trajectory_pb2 as pb

_ROLES = {
    "system": pb.ROLE_SYSTEM,
    "developer": pb.ROLE_SYSTEM,
    "user": pb.ROLE_USER,
    "assistant": pb.ROLE_ASSISTANT,
    "tool": pb.ROLE_TOOL,
    "function": pb.ROLE_TOOL,
}
_NAMES = {
    pb.ROLE_SYSTEM: "system",
    pb.ROLE_USER: "user",
    pb.ROLE_ASSISTANT: "assistant",
    pb.ROLE_TOOL: "tool",
}


def messages_of(body: Mapping[str, Any]) -> list[pb.Message]:
    """The conversation in the body of a request; never raises.

    Of chat completions `messages`, of responses `instructions` and `input`, of
    completions `prompt`. What cannot be read is left out: this is for people
    and judges, and the tokens say exactly what the model saw.
    """
    found: list[pb.Message] = []
    if isinstance(instructions := body.get("instructions"), str):
        found.append(pb.Message(role=pb.ROLE_SYSTEM, content=clean(instructions)))
    for key in ("messages", "input", "prompt"):
        value = body.get(key)
        if isinstance(value, str):
            found.append(pb.Message(role=pb.ROLE_USER, content=clean(value)))
        elif isinstance(value, list):
            items = responses_items.as_chat(value) if key == "input" else value
            found += [message_of(item) for item in items if isinstance(item, Mapping)]
    return found


def message_of(plain: Mapping[str, Any]) -> pb.Message:
    """One message of chat completions; never raises."""
    calls = plain.get("tool_calls")
    reasoning = plain.get("reasoning_content", plain.get("reasoning"))
    return pb.Message(
        role=_ROLES.get(_text(plain.get("role")), pb.ROLE_USER),
        content=_text(plain.get("content")),
        tool_calls=_calls(calls) if isinstance(calls, list) else [],
        tool_call_id=_name(plain.get("tool_call_id")),
        name=_text(plain.get("name")),
        reasoning=clean(reasoning) if isinstance(reasoning, str) else None,
    )


def tools_of(body: Mapping[str, Any]) -> list[pb.Tool]:
    """The functions that a request offers; never raises."""
    found = []
    tools = body.get("tools")
    for item in tools if isinstance(tools, list) else ():
        if not isinstance(item, Mapping) or item.get("type", "function") != "function":
            continue
        # Responses have the function's fields on the tool itself.
        plain = item.get("function", item)
        if isinstance(plain, Mapping) and _text(plain.get("name")):
            found.append(_tool(plain))
    return found


def to_openai(message: pb.Message) -> dict[str, Any]:
    """A message as chat completions write it."""
    plain: dict[str, Any] = {"role": _NAMES.get(message.role, "user"), "content": message.content}
    if message.HasField("reasoning"):
        plain["reasoning_content"] = message.reasoning
    if message.tool_calls:
        plain["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments_json},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        plain["tool_call_id"] = message.tool_call_id
    if message.name:
        plain["name"] = message.name
    return plain


def tools_to_openai(tools: Iterable[pb.Tool]) -> list[dict[str, Any]]:
    """Tools as chat completions write them."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": plain_of(tool.parameters),
            },
        }
        for tool in tools
    ]


def _calls(plain: Sequence[Any]) -> list[pb.ToolCall]:
    # One without a name calls nothing, and no service takes it.
    return [call for call in map(_call, plain) if call.name]


def _call(plain: Any) -> pb.ToolCall:
    call = plain if isinstance(plain, Mapping) else {}
    function = call.get("function")
    function = function if isinstance(function, Mapping) else {}
    return pb.ToolCall(
        id=_name(call.get("id")),
        name=_name(function.get("name")),
        arguments_json=_arguments(function.get("arguments")),
    )


def _tool(plain: Mapping[str, Any]) -> pb.Tool:
    tool = pb.Tool(name=_name(plain.get("name")), description=_text(plain.get("description")))
    if isinstance(parameters := plain.get("parameters"), Mapping):
        tool.parameters.CopyFrom(struct_of(parameters))
    return tool


def _text(value: Any) -> str:
    """Text as it is; of a list of parts their texts; anything else as JSON."""
    if value is None or isinstance(value, str):
        return clean(value or "")
    if isinstance(value, Sequence):
        return clean("".join(_part(part) for part in value))
    try:
        return clean_json(json.dumps(value, default=str))
    except (ValueError, TypeError, RecursionError):
        return f"[{type(value).__name__}]"


def _name(value: Any) -> str:
    return name_of(_text(value))


def _arguments(value: Any) -> str:
    return clean_json(_text(value))


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping):
        text = part.get("text", part.get("refusal"))
        return text if isinstance(text, str) else f"[{part.get('type', 'part')}]"
    return ""
