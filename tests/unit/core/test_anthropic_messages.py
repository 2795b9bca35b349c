"""Requests of Anthropic's Messages API as conversations, whatever they hold."""

from __future__ import annotations

from typing import Any

import pytest
from podium.core.anthropic_messages import as_chat
from podium.core.openai_messages import messages_of, to_openai, tools_of
from podium.types.v1 import trajectory_pb2 as pb

SCHEMA = {"type": "object", "properties": {"at": {"type": "number"}}}


def test_system_calls_and_results_are_what_they_are() -> None:
    body = {
        "system": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}],
        "tools": [{"name": "look", "description": "See.", "input_schema": SCHEMA}],
        "messages": [
            {"role": "user", "content": "Look."},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "x"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 1}},
                    {"type": "tool_use", "id": "c2", "name": "look", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "a door"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "c2",
                        "content": [
                            {"type": "text", "text": "a "},
                            {"type": "text", "text": "cat"},
                        ],
                    },
                    {"type": "text", "text": "Go on."},
                    {"type": "image", "source": {"type": "url", "url": "http://x"}},
                ],
            },
        ],
    }
    chat = as_chat(body)
    call = {"type": "function", "function": {"name": "look", "arguments": "{}"}}
    assert [to_openai(message) for message in messages_of(chat)] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {**call, "id": "c1", "function": {"name": "look", "arguments": '{"at": 1}'}},
                {**call, "id": "c2"},
            ],
        },
        {"role": "tool", "content": "a door", "tool_call_id": "c1"},
        {"role": "tool", "content": "a cat", "tool_call_id": "c2"},
        {"role": "user", "content": "Go on.[image]"},
    ]
    (tool,) = tools_of(chat)
    assert (tool.name, tool.description) == ("look", "See.")
    assert dict(tool.parameters)["type"] == "object"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"system": 7, "messages": "hello", "tools": "none"},
        {"messages": [1, None, {"role": 3, "content": 4}, {"content": [None, 1, "x", {}]}]},
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": [1]}]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}], "tools": [{}, 1]},
    ],
)
def test_nothing_that_is_sent_makes_it_raise(body: dict[str, Any]) -> None:
    chat = as_chat(body)
    assert all(isinstance(message, pb.Message) for message in messages_of(chat))
    tools_of(chat)
