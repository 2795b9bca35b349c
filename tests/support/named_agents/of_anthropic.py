"""An agent written with Anthropic's client: `tool_use` and `tool_result`, every answer streamed."""

from __future__ import annotations

from typing import Any

from anthropic import AsyncAnthropic

TOOLS: list[Any] = [
    {
        "name": "add",
        "description": "Adds two integers.",
        "input_schema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
        "cache_control": {"type": "ephemeral"},
    }
]
SYSTEM: list[Any] = [
    {
        "type": "text",
        "text": "Use the tool for every sum.",
        "cache_control": {"type": "ephemeral"},
    }
]


async def answer(question: str, *, base_url: str, api_key: str, model: str) -> str:
    messages: list[Any] = [{"role": "user", "content": question}]
    # Its paths begin with `/v1` themselves.
    root = base_url.removesuffix("/v1")
    async with AsyncAnthropic(base_url=root, api_key=api_key) as client:
        while True:
            async with client.messages.stream(
                model=model,
                system=SYSTEM,
                messages=messages,
                tools=TOOLS,
                tool_choice={"type": "auto", "disable_parallel_tool_use": True},
                max_tokens=100,
                metadata={"user_id": "somebody"},
            ) as stream:
                said = await stream.get_final_message()
            messages.append({"role": "assistant", "content": said.content})
            if said.stop_reason != "tool_use":
                return "".join(block.text for block in said.content if block.type == "text")
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": block.id,
                    "content": str(block.input["a"] + block.input["b"]),
                }
                for block in said.content
                if block.type == "tool_use"
            ]
            messages.append({"role": "user", "content": results})
