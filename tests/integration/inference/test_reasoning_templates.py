"""Thoughts are kept or dropped as a model's own template does it, and read as vLLM reads them."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from podium.core.errors import FailedPreconditionError
from podium.core.reasoning_formats import PARSERS
from podium.core.tool_calls import parse_reply
from podium.types.v1 import trajectory_pb2 as pb
from podium_inference.domain.render import Renderer
from podium_inference.settings import Settings
from support.template_tokenizer import TemplateTokenizer, shipped

LOOK = pb.Tool(name="look", description="Looks.")
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": 1}}\n</tool_call>'


def renderer(name: str, parser: str) -> Renderer:
    return Renderer(TemplateTokenizer(shipped(name)), reasoning_parser=parser)


def follows(renders: Renderer, *messages: pb.Message, tools: bool) -> str | None:
    """What follows the last assistant's turn; None where a new history begins."""
    covered = max(n for n, m in enumerate(messages, 1) if m.role == pb.ROLE_ASSISTANT)
    call_format = renders.call_format if tools else ""
    try:
        ids = renders.following(messages, [LOOK] * tools, [5], covered, call_format)
    except FailedPreconditionError as error:
        if error.reason != "HISTORY_NOT_CONTINUABLE":
            raise
        return None
    return bytes(number - 1 for number in ids[1:]).decode()


ASKED = pb.Message(role=pb.ROLE_USER, content="one?")
MORE = pb.Message(role=pb.ROLE_USER, content="and?")
SEEN = pb.Message(role=pb.ROLE_TOOL, content="a lamp", tool_call_id="call00000", name="look")
THOUGHT_CALL = parse_reply(f"<think>\nwhy\n</think>\n\n{CALL}", "qwen3/hermes")
THOUGHT_ANSWER = parse_reply("<think>\nwhy\n</think>\n\nYes.", "qwen3/")


@pytest.mark.parametrize("name", ["qwen3", "qwen3_training"])
def test_thoughts_stay_while_tools_are_called(name: str) -> None:
    found = follows(renderer(name, "qwen3"), ASKED, THOUGHT_CALL, SEEN, tools=True)
    assert found is not None
    assert found.startswith("<|im_end|>\n<|im_start|>user\n<tool_response>\na lamp")


def test_qwen3_drops_them_when_somebody_asks_again_and_a_new_history_begins() -> None:
    renders = renderer("qwen3", "qwen3")
    assert follows(renders, ASKED, THOUGHT_ANSWER, MORE, tools=False) is None
    assert follows(renders, ASKED, THOUGHT_CALL, SEEN, MORE, tools=True) is None
    # Those of turns long before the sampled one, too.
    later = parse_reply(CALL, "hermes")
    loop = [m for _ in range(6) for m in (later, SEEN)]
    talk = [ASKED, THOUGHT_CALL, SEEN, *loop]
    assert follows(renders, *talk, tools=True) is not None
    assert follows(renders, *talk, MORE, tools=True) is None


def test_thoughts_in_the_words_before_a_call_are_not_lost_in_silence() -> None:
    # Without a parser they are a part of the content; the template takes them out all the same.
    called = parse_reply(f"<think>\nwhy\n</think>\n\n{CALL}", "hermes")
    renders = renderer("qwen3", "")
    assert follows(renders, ASKED, called, SEEN, tools=True) is not None
    assert follows(renders, ASKED, called, SEEN, MORE, tools=True) is None


def test_trls_template_for_training_keeps_them() -> None:
    found = follows(renderer("qwen3_training", "qwen3"), ASKED, THOUGHT_ANSWER, MORE, tools=False)
    assert found == "<|im_end|>\n<|im_start|>user\nand?<|im_end|>\n<|im_start|>assistant\n"


def test_a_template_that_never_writes_thoughts_begins_anew() -> None:
    renders = renderer("qwen2_5", "deepseek_r1")
    assert follows(renders, ASKED, THOUGHT_ANSWER, MORE, tools=False) is None
    assert follows(renders, ASKED, parse_reply("Yes.", ""), MORE, tools=False) is not None


def test_how_a_reply_is_read_depends_on_what_the_template_is_told() -> None:
    renders = renderer("qwen3", "qwen3")
    assert renders.reply_format("hermes", {}) == "qwen3/hermes"
    assert renders.reply_format("hermes", {"enable_thinking": False}) == "hermes"
    assert renderer("qwen3", "").reply_format("", {}) == ""


def test_the_setting_names_the_parsers_that_there_are() -> None:
    allowed = get_args(Settings.model_fields["reasoning_parser"].annotation)
    assert set(allowed) == {"", *PARSERS}
    with pytest.raises(ValueError, match="reasoning_parser"):
        Settings(reasoning_parser="other")


# A well-formed reply, one whose prompt opened the thoughts, and one that was cut off.
REPLIES = ["{0}why{1}\n\nYes.", "why{1}Yes.", "{0}why"]
SIGNS = {"seed_oss": ("<seed:think>", "</seed:think>")}


@pytest.mark.parametrize(
    "parser", sorted(PARSERS.keys() - {"mistral", "openai_gptoss", "deepseek_v3"})
)
def test_a_reply_is_read_as_vllm_reads_it(parser: str) -> None:
    pytest.importorskip("vllm")
    from podium.local import models
    from transformers import AutoTokenizer
    from vllm.reasoning import ReasoningParserManager

    signs = SIGNS.get(parser, ("<think>", "</think>"))
    tokenizer = AutoTokenizer.from_pretrained(models.resolve("smollm2-135m-instruct"))
    tokenizer.add_tokens([*signs, "<tool_call>", "</tool_call>", "<|tool_calls_section_begin|>"])
    theirs = ReasoningParserManager.get_reasoning_parser(parser)(tokenizer)
    request: Any = type("Request", (), {"tools": None, "tool_choice": "auto"})()
    replies = [reply.format(*signs) for reply in REPLIES]
    if parser == "olmo3":
        # It takes thoughts that were cut off for the answer, its opening sign included.
        replies.pop()
    for reply in replies:
        thoughts, answer = theirs.extract_reasoning(reply, request)
        assert PARSERS[parser](reply) == (thoughts.strip(), (answer or "").lstrip())


def test_every_parser_is_one_of_vllms() -> None:
    pytest.importorskip("vllm")
    from vllm.reasoning import ReasoningParserManager

    for parser in PARSERS:
        assert ReasoningParserManager.get_reasoning_parser(parser)
