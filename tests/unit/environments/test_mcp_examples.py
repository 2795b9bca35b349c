"""Worked examples of the environment `mcp`: what is refused, and what the model reads of them."""

from __future__ import annotations

from typing import Any

import pytest
from podium.core.errors import InvalidArgumentError
from podium.core.text_tools import as_text
from podium.environments.adapters.mcp import Config
from podium.environments.adapters.mcp_examples import (
    MOST_CALLS,
    MOST_CHARACTERS,
    MOST_EXAMPLES,
    Example,
    call_faults,
    size_faults,
    turns,
)
from podium.environments.base import checked_options
from podium.environments.serving.convert import message_to_pb
from podium.environments.types import Tool
from podium.types.v1 import trajectory_pb2 as pb

LIMITS = {
    "type": "object",
    "properties": {"pages": {"type": ["integer", "null"]}, "exact": {"type": "boolean"}},
    "required": ["pages"],
}
SEARCH = Tool(
    "search",
    "Looks for words.",
    {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "order": {"enum": ["newest", "oldest"]},
            "limits": LIMITS,
        },
        "required": ["query"],
    },
)
AT = "x.examples.0.calls.0"


def call(arguments: Any, tool: str = "search", result: str = "none") -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments, "result": result}


def example(*calls: dict[str, Any]) -> Example:
    return Example.model_validate({"task": "Who is Olm?", "calls": calls, "answer": "A lord."})


def test_an_example_is_turns_of_the_conversation_with_a_result_for_each_call() -> None:
    first = example(call({"query": "Olm"}, result="7: Olm"), call({"query": "lord"}, result=""))
    said = turns([first, example(), example(call({"query": "Æ"}))])
    assert [message.role for message in said] == [
        *("user", "assistant", "tool", "assistant", "tool", "assistant"),
        *("user", "assistant"),
        *("user", "assistant", "tool", "assistant"),
    ]
    made = [each for message in said for each in message.tool_calls]
    answered = [message.tool_call_id for message in said if message.role == "tool"]
    # As those of replies are numbered, so that the model's first call is the next.
    assert [each.id for each in made] == answered == ["call00000", "call00001", "call00002"]
    assert [each.arguments_json for each in made][2] == '{"query": "Æ"}'


def test_a_model_without_tools_reads_an_examples_call_as_it_should_write_its_own() -> None:
    said = [message_to_pb(message) for message in turns([example(call({"query": "Olm"}))])]
    asked = pb.Message(role=pb.ROLE_USER, content="Who is Esk?")
    shown, _ = as_text([*said, asked], "")
    assert [(message.role, message.content) for message in shown[1:]] == [
        (pb.ROLE_USER, "Who is Olm?"),
        (pb.ROLE_ASSISTANT, 'call: search {"query": "Olm"}'),
        (pb.ROLE_USER, "result of search:\nnone"),
        (pb.ROLE_ASSISTANT, "A lord."),
        (pb.ROLE_USER, "Who is Esk?"),
    ]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("one", "examples: got 'one': Input should be a valid list"),
        ([{"answer": "x"}], "examples.0.task: is required"),
        ([{"task": "x"}], "examples.0.answer: is required"),
        ([{"task": " ", "answer": "x"}], "allowed are texts that are not empty"),
        ([{"task": "x", "answer": ""}], "allowed are texts that are not empty"),
        ([{"task": "x", "answer": 3}], "examples.0.answer: got 3"),
        ([{"task": "x", "answer": "x", "call": []}], "examples.0.call: unknown option"),
        ([{"task": "x", "answer": "x", "calls": [call("{}")]}], "calls.0.arguments: got '{}'"),
        ([{"task": "x", "answer": "x", "calls": [call({"a": 1e999})]}], "allowed are JSON values"),
        ([{"task": "x", "answer": "x", "calls": [{"tool": "f"}]}], "calls.0.result: is required"),
    ],
)
def test_what_is_no_example_is_named(wrong: Any, told: str) -> None:
    options = {"server": {"url": "http://x"}, "examples": wrong}
    with pytest.raises(InvalidArgumentError) as caught:
        checked_options(Config, options, "environment.config")
    assert told in str(caught.value)


def test_too_many_or_too_long_examples_are_counted_and_not_repeated() -> None:
    most = [example()] * MOST_EXAMPLES
    assert list(size_faults(most, "x.examples")) == []
    (fault,) = size_faults([*most, example()], "x.examples")
    assert (fault.field, fault.description) == ("x.examples", "got 17 examples; allowed are 16")
    (fault,) = size_faults([example(), example(*[call({})] * (MOST_CALLS + 1))], "x.examples")
    assert str(fault) == "x.examples.1.calls: got 17 calls; allowed are 16"
    (fault,) = size_faults([example(call({"query": "y" * MOST_CHARACTERS}))], "x.examples")
    assert str(fault).endswith("characters in all examples; allowed are 32000")


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": "Olm"},
        {"query": "Olm", "order": "oldest", "limits": {"pages": None, "exact": True}},
        {"query": "Olm", "limits": {"pages": 3.0}},
    ],
)
def test_arguments_that_the_schema_has_are_taken(arguments: dict[str, Any]) -> None:
    assert call_faults([example(call(arguments))], [SEARCH], "x.examples") == []


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (call({}, "serch"), f"{AT}.tool: got \"serch\", no tool on offer; did you mean 'search'?"),
        (call({}, "fly"), f'{AT}.tool: got "fly", no tool on offer; there are search'),
        (call({}), f"{AT}.arguments.query: is missing, and the tool's schema requires it"),
        (call({"query": 3}), f"{AT}.arguments.query: got 3; the tool's schema allows string"),
        (
            call({"query": "x", "order": "best"}),
            f'{AT}.arguments.order: got "best"; the tool\'s schema allows ["newest", "oldest"]',
        ),
        (
            call({"query": "x", "limit": 3}),
            f"{AT}.arguments.limit: the tool's schema has no such argument; did you mean 'limits'?",
        ),
        (
            call({"query": "x", "limits": {"pages": True}}),
            f"{AT}.arguments.limits.pages: got true; the tool's schema allows integer or null",
        ),
        (
            call({"query": "x", "limits": {"pages": 3, "exact": 1}}),
            f"{AT}.arguments.limits.exact: got 1; the tool's schema allows boolean",
        ),
    ],
)
def test_a_call_that_the_server_would_refuse_is_named(made: dict[str, Any], told: str) -> None:
    assert list(map(str, call_faults([example(made)], [SEARCH], "x.examples"))) == [told]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": [{}], "properties": 3, "required": "query", "enum": {}},
        {"type": "thing", "properties": {"query": 3}, "required": [3, {}]},
        {"type": {}, "properties": {"query": {"pattern": "(a+)+$", "$ref": "#"}}},
        {"properties": {}, "additionalProperties": {}},
        {"properties": {}, "patternProperties": {"(a+)+$": {}}},
        {"properties": {}, "allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#"}}},
    ],
)
def test_a_servers_odd_schema_refuses_nothing_and_takes_no_time(schema: dict[str, Any]) -> None:
    made = example(call({"query": "a" * 5000 + "!"}))
    assert call_faults([made], [Tool("search", "", schema)], "x.examples") == []


def test_of_a_flood_of_faults_the_first_are_told() -> None:
    many = {f"argument{number}": 1 for number in range(3000)}
    tools = [Tool(f"tool{n}", "", {"properties": many}) for n in range(3000)]
    wrong = [example(call({f"x{n}": 1 for n in range(1000)}, "tool7"), call({}, "none"))]
    faults = call_faults(wrong, tools, "x.examples")
    assert len(faults) == 20
    assert all(len(str(fault)) < 500 for fault in faults)
