"""Bodies of OpenAI's APIs as conversations, whatever they hold."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import json_format
from podium.core.openai_messages import message_of, messages_of, to_openai, tools_of
from podium.types.v1 import trajectory_pb2 as pb

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}


def test_a_chat_with_tools_and_parts_goes_there_and_back() -> None:
    plain = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "a door", "tool_call_id": "c1"},
    ]
    assert [to_openai(message) for message in messages_of({"messages": plain})] == plain


def test_parts_are_their_texts_and_what_is_no_text_is_named() -> None:
    parts = [{"type": "text", "text": "See "}, {"type": "image_url", "image_url": {"url": "x"}}]
    assert message_of({"role": "user", "content": parts}).content == "See [image_url]"


def test_responses_have_instructions_input_and_calls_as_items() -> None:
    body = {
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Look."}]},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "a door"},
        ],
    }
    system, user, call, result = messages_of(body)
    assert (system.role, user.content) == (pb.ROLE_SYSTEM, "Look.")
    assert (call.role, call.tool_calls[0].name) == (pb.ROLE_ASSISTANT, "look")
    assert (result.role, result.tool_call_id) == (pb.ROLE_TOOL, "c1")


def test_the_items_of_one_turn_are_one_message_as_the_model_said_it() -> None:
    said = {"type": "output_text", "text": "I look."}
    body = {
        "input": [
            {"type": "reasoning", "summary": [], "content": [{"text": "Where?"}]},
            {"type": "message", "role": "assistant", "content": [said]},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "custom_tool_call", "call_id": "c2", "name": "feel", "input": "it"},
            {"type": "function_call_output", "call_id": "c1", "output": "a door"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": "cold"},
            {"type": "reasoning", "summary": [{"text": "A door."}], "encrypted_content": "x"},
            {"type": "item_reference", "id": "i"},
            {"type": "function_call", "call_id": "c3", "name": "open", "arguments": "{}"},
        ]
    }
    first, door, cold, second = messages_of(body)
    assert (first.content, first.reasoning) == ("I look.", "Where?")
    assert [call.name for call in first.tool_calls] == ["look", "feel"]
    assert [door.tool_call_id, cold.tool_call_id, cold.content] == ["c1", "c2", "cold"]
    assert (second.role, second.reasoning) == (pb.ROLE_ASSISTANT, "A door.")


@pytest.mark.parametrize("nested", [True, False])
def test_tools_of_both_apis(nested: bool) -> None:
    function = {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}
    tool = {"type": "function", "function": function} if nested else {"type": "function"} | function
    (read,) = tools_of({"tools": [tool, {"type": "web_search"}]})
    assert read.name == "look"
    assert json_format.MessageToDict(read.parameters) == {"type": "object"}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": 3},
        {"messages": [1, None, {}]},
        {"messages": [{"role": "nobody", "content": {"a": 1}, "tool_calls": [4, {"id": 7}]}]},
        {"input": [{"type": []}, {"type": "reasoning", "content": 4, "summary": [None, {}]}]},
        {"input": [{"role": "assistant", "tool_calls": 3}, {"type": "function_call"}]},
        {"tools": "many"},
        {"tools": [5, {"function": 6}, {"function": {"name": 7, "parameters": {1: object()}}}]},
    ],
)
def test_nothing_makes_it_fail(body: dict[str, Any]) -> None:
    messages_of(body)
    tools_of(body)
