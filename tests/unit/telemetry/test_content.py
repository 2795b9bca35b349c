"""What is said, as the GenAI conventions write it, and never beyond its bound."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from podium.core.errors import InvalidArgumentError
from podium.kit.telemetry import content
from podium.types.v1 import trajectory_pb2 as pb

TEXT = st.text(max_size=9000)


def said(text: str, role: int = pb.ROLE_USER) -> pb.Message:
    return pb.Message(role=role, content=text)


@pytest.mark.parametrize("value", ["false", "NO_CONTENT", "", "  "])
def test_nothing_is_told_unless_it_is_wanted(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(content.VARIABLE, value)
    content.check()
    assert not content.wanted()


@pytest.mark.parametrize("value", ["EVENT_ONLY", "yes", "1"])
def test_a_value_that_says_neither_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(content.VARIABLE, value)
    assert not content.wanted()
    with pytest.raises(InvalidArgumentError) as refused:
        content.check()
    (violation,) = refused.value.violations
    assert violation.field == content.VARIABLE
    assert value in violation.description


@given(st.lists(st.builds(said, TEXT), max_size=6))
def test_messages_are_whole_json_within_the_bound(messages: list[pb.Message]) -> None:
    text = content.messages(messages)
    assert len(text.encode()) <= content.MAX_BYTES
    told = json.loads(text)
    if messages and len(told) == len(messages):
        assert told[-1]["parts"][0]["content"][:9] == messages[-1].content[:9]


@pytest.mark.parametrize("letter", ["a", "\x00", "€", "\U0001f600", '"'])
def test_the_newest_message_is_there_however_long(letter: str) -> None:
    messages = [said("first"), said(letter * 100_000, pb.ROLE_ASSISTANT)]
    text = content.messages(messages, "length")
    assert len(text.encode()) <= content.MAX_BYTES
    left_out, newest = json.loads(text)
    assert "1 earlier messages are left out" in left_out["parts"][0]["content"]
    assert newest["finish_reason"] == "length"
    whole = newest["parts"][0]["content"]
    assert whole.endswith("…")
    assert set(whole[:-1]) == {letter}
    assert len(json.dumps(whole, ensure_ascii=False).encode()) > content.MAX_BYTES / 8


@pytest.mark.parametrize("thoughts", ["so", "€" * 100_000])
def test_thoughts_are_a_part_of_their_own_and_the_first_to_be_cut(thoughts: str) -> None:
    message = pb.Message(role=pb.ROLE_ASSISTANT, content="a" * 9000, reasoning=thoughts)
    text = content.messages([message])
    assert len(text.encode()) <= content.MAX_BYTES
    [told] = json.loads(text)
    thought, answer = told["parts"]
    assert thought["type"] == "reasoning"
    assert thoughts.startswith(thought["content"].removesuffix("…"))
    assert len(thought["content"]) >= 2
    assert answer == {"type": "text", "content": message.content}


def test_a_call_that_was_thought_about_has_no_empty_text() -> None:
    call = pb.ToolCall(id="c", name="look", arguments_json="{}")
    message = pb.Message(role=pb.ROLE_ASSISTANT, reasoning="so", tool_calls=[call])
    [told] = json.loads(content.messages([message]))
    assert [part["type"] for part in told["parts"]] == ["reasoning", "tool_call"]


def test_text_is_cut_between_letters() -> None:
    assert content.cut("short") == "short"
    assert content.cut("€€€", 8) == "€…"
    assert content.cut("€€€", 2) == ""


def test_tools_that_do_not_fit_are_left_out() -> None:
    tools = [pb.Tool(name=f"t{n}", description="x" * 1000) for n in range(100)]
    text = content.tools(tools)
    assert len(text.encode()) <= content.MAX_BYTES
    assert [tool["name"] for tool in json.loads(text)] == [f"t{n}" for n in range(15)]
