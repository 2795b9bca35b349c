"""What each family of models writes, read back; sources are named in `tool_formats`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from podium.core.tool_calls import parse_reply, parse_tool_calls
from podium.core.tool_formats import FORMATS
from podium.types.v1 import trajectory_pb2 as pb
from support.gathered import wrong_of
from support.written_calls import ALONE, WRITTEN

KIMI = "<|tool_call_begin|>functions.{}:{}<|tool_call_argument_begin|>{}<|tool_call_end|>"
HARD = {
    "query": 'say "hi", it\'s é 雪 😀\n<b>next</b> \\d+',
    "number": "12",
    "limit": 3,
    "share": -0.5,
    "all": True,
    "none": None,
    "deep": {"a": [1, {"b": "x, y: [z]"}], "t": "", "no": False},
    "list": [1, "two", []],
}
TYPES = {
    "query": {"type": "string"},
    "number": {"type": ["string", "null"]},
    "limit": {"type": "integer"},
    "share": {"anyOf": [{"type": "number"}, {"type": "null"}]},
    "all": {"type": "boolean"},
    "none": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "deep": {"$ref": "#/$defs/Deep"},
    "list": {"type": "array"},
}


def tool(name: str, **properties: object) -> pb.Tool:
    made = pb.Tool(name=name)
    made.parameters.update({"type": "object", "properties": properties})
    return made


TOOLS = [tool("search", **TYPES), tool("read", id={"type": "integer"})]


def read(message: pb.Message) -> list[tuple[str, object]]:
    return [(call.name, json.loads(call.arguments_json)) for call in message.tool_calls]


def misread(name: str) -> Iterator[str]:
    """What one format makes of two calls, of one without arguments, and of words alone."""
    words = "" if name in ALONE else "I look.\n"
    reply = words + WRITTEN[name]([("search", HARD), ("read", {"id": 3})])
    message = parse_tool_calls(reply, name, tools=TOOLS)
    if read(message) != [("search", HARD), ("read", {"id": 3})] or message.malformed_calls:
        yield f"of two calls {message}"
    if message.content != words.strip():
        yield f"of the words before them {message.content!r}"
    message = parse_tool_calls(WRITTEN[name]([("look", {})]), name)
    if read(message) != [("look", {})] or message.content:
        yield f"of a call without arguments {message}"
    words = "I call nothing: [1], {2} or <b>."
    message = parse_tool_calls(words, name)
    if message != pb.Message(role=pb.ROLE_ASSISTANT, content=words):
        yield f"of words alone {message}"


def test_calls_and_words_are_read_in_every_format() -> None:
    wrong = wrong_of([(name, name) for name in FORMATS], misread)
    assert not wrong, wrong


@pytest.mark.parametrize(
    ("schema", "written", "meant"),
    [
        ({"type": "string"}, "3", "3"),
        ({"type": "string"}, "null", "null"),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "3", "3"),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        ({"type": "integer"}, "three", "three"),
        ({"type": "boolean"}, "True", True),
        ({"type": "boolean"}, "0", False),
        ({"type": "object"}, "{'a': True}", {"a": True}),
        ({"anyOf": [{"$ref": "#/$defs/Deep"}, {"type": "null"}]}, '{"a": 1}', {"a": 1}),
        ({}, "3", 3),
        ({}, "3 apples", "3 apples"),
        ({}, "1e999", "1e999"),
        ({}, "", ""),
        ({"type": 7, "anyOf": "odd", "enum": 3}, "3", 3),
        ("odd", "3", 3),
    ],
)
def test_what_is_written_as_text_has_the_type_that_the_tool_says(
    schema: object, written: str, meant: object
) -> None:
    reply = f"<tool_call><function=f><parameter=x>{written}</parameter></function></tool_call>"
    message = parse_tool_calls(reply, "qwen3_coder", tools=[tool("f", x=schema)])
    assert read(message) == [("f", {"x": meant})]


def test_a_value_may_hold_the_tags_of_its_own_format() -> None:
    code = "</parameter> is XML; </function> too"
    reply = WRITTEN["qwen3_coder"]([("run", {"code": code, "more": "x"})])
    assert read(parse_tool_calls(reply, "qwen3_coder")) == [("run", {"code": code, "more": "x"})]


def test_qwens_forgotten_opening_tag_is_not_missed() -> None:
    reply = "<function=look>\n<parameter=at>\n1\n</parameter>\n</function>\n</tool_call>"
    assert read(parse_tool_calls(reply, "qwen3_coder")) == [("look", {"at": 1})]


def test_harmonys_words_are_the_answer_and_its_thoughts_hold_no_calls() -> None:
    reply = (
        "<|channel|>analysis<|message|>I would do it.<|end|><|start|>assistant"
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
        '<|channel|>commentary to=functions.look <|constrain|>json<|message|>{"at": 1}<|call|>'
    )
    message = parse_reply(reply, "openai_gptoss/openai")
    assert (message.reasoning, message.content) == ("I would do it.", "I look.")
    assert read(message) == [("look", {"at": 1})]
    last = parse_reply("<|channel|>final<|message|>Yes.<|return|>", "openai_gptoss/openai")
    assert (last.content, len(last.tool_calls)) == ("Yes.", 0)
    # As the template writes it.
    again = " to=functions.look<|channel|>commentary json<|message|>{}<|call|>"
    assert read(parse_reply(again, "openai_gptoss/openai")) == [("look", {})]


def test_what_muse_says_to_itself_holds_no_calls() -> None:
    call = WRITTEN["muse_glimmer"]([("look", {"at": 1})])
    inner = call.partition("<|message|>")[2].removesuffix("<|eom|>")
    reply = f" to=self<|message|>Perhaps {inner}<|eom|>{call}"
    assert read(parse_tool_calls(reply, "muse_glimmer")) == [("look", {"at": 1})]


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
    reply = KIMI.format("search", 0, "{}") + KIMI.format("read", 1, "{}")
    message = parse_tool_calls(reply, "kimi_k2", calls_before=7)
    assert [call.id for call in message.tool_calls] == ["functions.search:0", "functions.read:1"]


def test_other_ids_number_the_conversations_calls_in_nine_letters() -> None:
    reply = WRITTEN["hermes"]([("search", {}), ("read", {})])
    message = parse_tool_calls(reply, "hermes", calls_before=7)
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
        ("qwen3_coder", "<tool_call><function=f><parameter=x>1", "its end is missing"),
        ("qwen3_coder", "<function=></function>", "has no name"),
        ("qwen3_coder", "<function=f>{}</function>", "is no argument"),
        ("glm45", "<tool_call>f<arg_key>x</arg_key></tool_call>", "is no argument"),
        ("minimax_m2", '<invoke name="f"><parameter name="x">1</invoke>', "is no argument"),
        ("muse_glimmer", '<atem:invoke name="f">1', "is no argument"),
        ("openai", "<|channel|>commentary to=functions.<|message|>{}", "has no name"),
        ("gemma4", '<|tool_call>call:f{x:<|"|>a}<tool_call|>', "does not end"),
        ("gemma4", "<|tool_call>call:f{x:1", "must"),
        ("lfm2", "<|tool_call_start|>[f(1)]<|tool_call_end|>", "no argument with its name"),
        ("lfm2", "<|tool_call_start|>[]<|tool_call_end|>", "calls nothing"),
        ("lfm2", "<|tool_call_start|>[f(x=y)]<|tool_call_end|>", "'y)]"),
        ("olmo3", "<function_calls>f(x='a\n</function_calls>", "does not end"),
        ("pythonic", "[f(x=1), {}]", "is no call"),
        ("pythonic", "[f(x=1)] and more", "follows its calls"),
        ("granite", '<|tool_call|>{"name": "f"}', "no list of calls"),
        ("apertus", '<|tools_prefix|>[{"a": {}, "b": {}}]', "no object of one name"),
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


def test_a_reply_of_nothing_but_openings_is_not_looked_through_for_each() -> None:
    reply = "<function=f><parameter=x>" * 1_000
    message = parse_tool_calls(reply, "qwen3_coder")
    assert message.content == reply
    assert len(message.malformed_calls) == 64


SIGNS = ["\n", "{", "[", "]", "}", ";", "é", '{"name": "', '"a": ', "[" * 5000, "{a:" * 5000]
SIGNS += ["[f(x=", "'", '"', ")", ":", "(" * 300, "=", "\\", "1e999", "9" * 5000, "to=f"]
# Their signs, as one call of each has them.
SIGNS += sorted(
    {
        sign
        for written in WRITTEN.values()
        for sign in re.findall(r"<[^<>\n]+>|\[[A-Z_]+\]", written([("f", {"x": "1", "y": 2})]))
    }
)


@pytest.mark.parametrize("name", FORMATS)
@given(parts=st.lists(st.sampled_from(SIGNS) | st.text(max_size=5), max_size=12))
def test_nothing_that_a_model_writes_raises(name: str, parts: list[str]) -> None:
    message = parse_tool_calls("".join(parts), name, tools=[tool("f", x={"type": "string"})])
    assert all(call.name for call in message.tool_calls)


@pytest.mark.parametrize("name", FORMATS)
@given(draw=st.data())
def test_a_call_that_is_cut_or_spliced_never_raises(name: str, draw: st.DataObject) -> None:
    reply = WRITTEN[name]([("search", HARD), ("read", {"id": 3})])
    cut = draw.draw(st.integers(0, len(reply)))
    begun = draw.draw(st.integers(0, len(reply)))
    inserted = draw.draw(st.sampled_from(["", *SIGNS]))
    parse_tool_calls(reply[:cut] + inserted + reply[begun:], name, tools=TOOLS)
