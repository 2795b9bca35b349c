"""An agent written with OpenAI's client: tools, in a loop that streams every answer."""

from __future__ import annotations

import json
from typing import Any

from openai import AsyncOpenAI

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds two integers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
                "additionalProperties": False,
            },
            "strict": True,
        },
    }
]


async def answer(question: str, *, base_url: str, api_key: str, model: str) -> str:
    messages: list[Any] = [
        {"role": "developer", "content": "Use the tool for every sum."},
        {"role": "user", "content": [{"type": "text", "text": question}]},
    ]
    async with AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        while True:
            async with client.chat.completions.stream(
                model=model,
                messages=messages,
                tools=TOOLS,
                parallel_tool_calls=False,
                max_completion_tokens=100,
                stream_options={"include_usage": True},
                store=False,
                metadata={"question": question},
            ) as stream:
                completion = await stream.get_final_completion()
            said = completion.choices[0].message
            messages.append(said)
            if not said.tool_calls:
                return said.content or ""
            for call in said.tool_calls:
                given = json.loads(call.function.arguments)
                total = str(given["a"] + given["b"])
                messages.append({"role": "tool", "tool_call_id": call.id, "content": total})
