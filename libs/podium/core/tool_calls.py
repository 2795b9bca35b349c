"""Tool calls in a reply: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`."""

from __future__ import annotations

import json
import re

from podium.types.v1 import trajectory_pb2 as pb

_CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|$)", re.DOTALL)


def parse_tool_calls(text: str) -> pb.Message:
    """The assistant's message in a reply.

    A call that is not JSON with a name stays in the text, where the
    environment sees it.
    """
    calls: list[pb.ToolCall] = []

    def take(match: re.Match[str]) -> str:
        try:
            raw = json.loads(match[1])
            name, arguments = raw["name"], raw.get("arguments", {})
        except (ValueError, KeyError, TypeError, AttributeError):
            return match[0]
        if not isinstance(name, str) or not name:
            return match[0]
        encoded = arguments if isinstance(arguments, str) else json.dumps(arguments)
        calls.append(pb.ToolCall(id=f"call_{len(calls)}", name=name, arguments_json=encoded))
        return ""

    content = _CALL.sub(take, text)
    return pb.Message(role=pb.ROLE_ASSISTANT, content=content.strip(), tool_calls=calls)
