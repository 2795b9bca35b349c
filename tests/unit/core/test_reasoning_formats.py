"""What a model thinks before it answers is told from its answer."""

from __future__ import annotations

import pytest
from podium.core.openai_messages import message_of, to_openai
from podium.core.reasoning_formats import PARSERS, thinks
from podium.core.tool_calls import parse_reply, reply_format
from podium.types.v1 import trajectory_pb2 as pb

CALL = '<tool_call>\n{"name": "look", "arguments": {"at": 1}}\n</tool_call>'


@pytest.mark.parametrize(
    ("parser", "reply", "thoughts", "answer"),
    [
        ("qwen3", "<think>\nwhy\n</think>\n\nAnswer.", "why", "Answer."),
        # The prompt had the opening sign.
        ("deepseek_r1", "why\n</think>\n\nAnswer.", "why", "Answer."),
        ("qwen3", "<think>\n\n</think>\n\nAnswer.", "", "Answer."),
        ("qwen3", "<think>cut off", "cut off", ""),
        ("qwen3", "cut off", "cut off", ""),
        ("mistral", "Answer.", None, "Answer."),
        ("mistral", "[THINK]why[/THINK]Answer.", "why", "Answer."),
        ("olmo3", "<think>cut off", "cut off", ""),
        ("seed_oss", "<seed:think>why</seed:think>Answer.", "why", "Answer."),
        ("qwen3", "<think>a</think>b</think>c", "a", "b</think>c"),
        (
            "openai_gptoss",
            "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final<|message|>"
            "Answer.<|return|>",
            "why",
            "Answer.",
        ),
        ("openai_gptoss", "<|channel|>analysis<|message|>cut off", "cut off", ""),
        ("openai_gptoss", "Answer.", None, "Answer."),
        ("openai_gptoss", "<|channel|>", None, ""),
    ],
)
def test_thoughts_are_apart(parser: str, reply: str, thoughts: str | None, answer: str) -> None:
    assert PARSERS[parser](reply) == (thoughts, answer)


def test_a_call_is_read_from_the_answer_and_not_from_thoughts() -> None:
    message = parse_reply(f"<think>I might {CALL}</think>{CALL}", "qwen3/hermes")
    assert [call.name for call in message.tool_calls] == ["look"]
    assert (message.reasoning, message.content) == (f"I might {CALL}", "")
    assert not parse_reply(f"<think>I might {CALL}", "qwen3/hermes").tool_calls
    # Without a parser all is the answer, as it was.
    plain = parse_reply(f"<think>I might {CALL}</think>", "hermes")
    assert len(plain.tool_calls) == 1
    assert not plain.HasField("reasoning")


def test_a_reply_without_tools_is_read_too() -> None:
    assert parse_reply("<think>why</think>Yes.", "qwen3/").content == "Yes."
    assert parse_reply("<think>why</think>Yes.", "").content == "<think>why</think>Yes."
    assert reply_format("", "hermes") == "hermes"
    assert reply_format("qwen3", "") == "qwen3/"


@pytest.mark.parametrize(
    ("parser", "told", "expected"),
    [
        ("qwen3", {}, True),
        ("qwen3", {"enable_thinking": False}, False),
        ("deepseek_v3", {}, False),
        ("deepseek_v3", {"thinking": True}, True),
        ("", {"thinking": True}, False),
    ],
)
def test_who_is_told_not_to_think_only_answers(
    parser: str, told: dict[str, bool], expected: bool
) -> None:
    assert thinks(parser, told) is expected


def test_reasoning_comes_and_goes_as_openai_messages_have_it() -> None:
    message = pb.Message(role=pb.ROLE_ASSISTANT, content="Yes.", reasoning="why")
    assert to_openai(message)["reasoning_content"] == "why"
    assert message_of(to_openai(message)) == message
    assert message_of({"role": "assistant", "content": "Yes.", "reasoning": "why"}) == message
    assert not message_of({"role": "assistant", "reasoning": ["odd"]}).HasField("reasoning")
    assert "reasoning_content" not in to_openai(pb.Message(role=pb.ROLE_ASSISTANT))
