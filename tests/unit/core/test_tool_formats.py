"""What each family of models writes, read back; sources are named in `tool_formats`."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from podium.core.tool_calls import parse_tool_calls
from podium.core.tool_formats import FORMATS
from podium.types.v1 import trajectory_pb2 as pb

KIMI = "<|tool_call_begin|>functions.{}:{}<|tool_call_argument_begin|>{}<|tool_call_end|>"
TWO = {
    "text": 'I look.\ncall: search {"query": "Olm"}\ncall: read {\n "id": 3\n}',
    "hermes": "I look.\n"
    '<tool_call>\n{"name": "search", "arguments": {"query": "Olm"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "read", "arguments": {"id": 3}}\n</tool_call>',
    "mistral": 'I look.[TOOL_CALLS] [{"name": "search", "arguments": {"query": "Olm"}}, '
    '{"name": "read", "arguments": {"id": 3}}]',
    "kimi_k2": "I look.<|tool_calls_section_begin|>"
    + KIMI.format("search", 0, '{"query": "Olm"}')
    + KIMI.format("read", 1, '{"id": 3}')
    + "<|tool_calls_section_end|>",
    "deepseek_v3": "I look.<｜tool▁calls▁begin｜>"
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n"
    '```json\n{"query": "Olm"}\n```<｜tool▁call▁end｜>\n'
    '<｜tool▁call▁begin｜>read<｜tool▁sep｜>{"id": 3}<｜tool▁call▁end｜>'
    "<｜tool▁calls▁end｜>",
}


def read(message: pb.Message) -> list[tuple[str, object]]:
    return [(call.name, json.loads(call.arguments_json)) for call in message.tool_calls]


@pytest.mark.parametrize("name", TWO)
def test_two_calls_and_words_before_them(name: str) -> None:
    message = parse_tool_calls(TWO[name], name)
    assert read(message) == [("search", {"query": "Olm"}), ("read", {"id": 3})]
    assert message.content == "I look."
    assert not message.malformed_calls


@pytest.mark.parametrize("tag", ["", "<|python_tag|>"])
def test_llamas_calls_are_the_whole_reply(tag: str) -> None:
    first = '{"name": "search", "parameters": {"query": "Olm; or {not}"}}'
    second = '{"type": "function", "name": "read", "parameters": {"id": 3}}'
    message = parse_tool_calls(f"{tag}{first}; {second}", "llama3_json")
    assert read(message) == [("search", {"query": "Olm; or {not}"}), ("read", {"id": 3})]
    assert message.content == ""


@pytest.mark.parametrize("reply", ['I would call {"name": "search"}.', '{"answer": 4}', "4"])
def test_llamas_prose_is_no_call(reply: str) -> None:
    message = parse_tool_calls(reply, "llama3_json")
    assert (message.content, len(message.tool_calls)) == (reply, 0)
    assert not message.malformed_calls


@pytest.mark.parametrize("middle", ["[ARGS]", "[CALL_ID]a1B2c3D4e[ARGS]", ""])
def test_mistrals_later_form(middle: str) -> None:
    reply = f'[TOOL_CALLS]search{middle}{{"query": "Olm"}}[TOOL_CALLS]read{middle}{{"id": 3}}'
    message = parse_tool_calls(reply, "mistral")
    assert read(message) == [("search", {"query": "Olm"}), ("read", {"id": 3})]
    assert (message.tool_calls[0].id == "a1B2c3D4e") == ("CALL_ID" in middle)


def test_kimis_ids_are_the_models_own() -> None:
    message = parse_tool_calls(TWO["kimi_k2"], "kimi_k2", calls_before=7)
    assert [call.id for call in message.tool_calls] == ["functions.search:0", "functions.read:1"]


def test_other_ids_number_the_conversations_calls_in_nine_letters() -> None:
    message = parse_tool_calls(TWO["hermes"], "hermes", calls_before=7)
    assert [call.id for call in message.tool_calls] == ["call00007", "call00008"]


def test_arguments_that_are_no_json_reach_the_environment_where_the_name_is_known() -> None:
    message = parse_tool_calls(KIMI.format("read", 0, "{id: 3"), "kimi_k2")
    assert [(c.name, c.arguments_json) for c in message.tool_calls] == [("read", "{id: 3")]


@pytest.mark.parametrize(
    ("name", "reply", "why"),
    [
        ("text", "call: read {id: 3}", "'{id: 3}' is no JSON"),
        ("text", "call: read [3]", "no JSON object"),
        ("text", 'call: {"id": 3}', "names no tool"),
        ("hermes", '<tool_call>{"name": "read", </tool_call>', "is no JSON"),
        ("hermes", '<tool_call>{"arguments": {}}</tool_call>', "has no name"),
        ("hermes", "<tool_call>[1]</tool_call>", "is no JSON object"),
        ("hermes", '<tool_call>{"name": "a"} {"name": "b"}</tool_call>', "something follows"),
        ("llama3_json", '{"name": "read", "parameters": {"id": 3}', "is no JSON"),
        ("llama3_json", "<|python_tag|>search.call(query='x')", "is no JSON"),
        ("mistral", '[TOOL_CALLS][{"name": "read"', "is no JSON"),
        ("mistral", "[TOOL_CALLS]read", "no function and arguments"),
        ("kimi_k2", "<|tool_call_begin|>functions.read:0<|tool_call_end|>", "no function and"),
        ("deepseek_v3", "<｜tool▁call▁begin｜>read {}<｜tool▁call▁end｜>", "no function and"),
    ],
)
def test_a_call_that_cannot_be_read_stays_in_the_text_and_is_told(
    name: str, reply: str, why: str
) -> None:
    message = parse_tool_calls(reply, name)
    (told,) = message.malformed_calls
    assert why in told
    assert len(message.content) > 0
    assert not message.tool_calls


def test_good_calls_beside_a_bad_one_are_read() -> None:
    message = parse_tool_calls('call: a {"x": 1}\ncall: b {x}\ncall: c', "text")
    assert [call.name for call in message.tool_calls] == ["a", "c"]
    assert len(message.malformed_calls) == 1


SIGNS = ["call: ", "<tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|tool_call_begin|>", "functions.x:0"]
SIGNS += [
    "<|tool_call_argument_begin|>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    '{"name": "',
    "{",
    "[",
]
SIGNS += ['"a": ', "]", "}", "\n", "</tool_call>", "<|python_tag|>", ";", "é", "[" * 5000]


@pytest.mark.parametrize("name", FORMATS)
@given(parts=st.lists(st.sampled_from(SIGNS) | st.text(max_size=5), max_size=12))
def test_nothing_that_a_model_writes_raises(name: str, parts: list[str]) -> None:
    message = parse_tool_calls("".join(parts), name)
    assert all(call.name for call in message.tool_calls)
