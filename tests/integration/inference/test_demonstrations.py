"""Conversations become tokens as Transformers renders them, and train where a model samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from podium.core.errors import InvalidArgumentError
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.types.v1 import trajectory_pb2 as pb
from podium_inference.domain.demonstration import demonstrations
from podium_inference.domain.render import Renderer
from support.template_tokenizer import TemplateTokenizer, shipped
from transformers.utils.chat_template_utils import render_jinja_template

ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<end_of_turn>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|END_RESPONSE|>",
    "<|END_OF_TURN_TOKEN|>",
)
SYSTEM = pb.Message(role=pb.ROLE_SYSTEM, content="Be short.")
ASKED = pb.Message(role=pb.ROLE_USER, content="one?")
YES = pb.Message(role=pb.ROLE_ASSISTANT, content="Yes.")
MORE = pb.Message(role=pb.ROLE_USER, content="and?")
NO = pb.Message(role=pb.ROLE_ASSISTANT, content="No.")
TALK = [ASKED, YES, MORE, NO]
PLAIN = [
    {"role": "user", "content": "one?"},
    {"role": "assistant", "content": "Yes."},
    {"role": "user", "content": "and?"},
    {"role": "assistant", "content": "No."},
]
LOOK = pb.Tool(name="look", description="Looks.")


def renderer(name: str) -> Renderer:
    return Renderer(TemplateTokenizer(shipped(name), ends=ENDS))


def rendered(
    name: str,
    messages: Sequence[pb.Message],
    trained: Sequence[int] = (),
    tools: Sequence[pb.Tool] = (),
    **arguments: Any,
) -> list[inference_pb.Demonstration]:
    renders = renderer(name)
    call_format = renders.call_format if tools else ""
    return demonstrations(renders, messages, tools, trained, call_format, arguments)


def text(ids: Sequence[int]) -> str:
    return bytes(number - 1 for number in ids).decode()


def trained_texts(found: Sequence[inference_pb.Demonstration]) -> list[str]:
    return [
        text(each.tokens.token_ids[span.start : span.start + span.length])
        for each in found
        for span in each.tokens.spans
    ]


FAMILIES = [
    "cohere",
    "cohere2",
    "gemma3",
    "gptoss",
    "lfm2",
    "llama3_1",
    "phi3",
    "qwen2_5",
    "qwen3",
    "qwen3_instruct_2507",
]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_tokens_are_those_of_transformers_own_rendering(name: str) -> None:
    (whole,), _ = render_jinja_template([PLAIN], chat_template=shipped(name), eos_token="<eos>")
    assert text(rendered(name, TALK)[-1].tokens.token_ids) == whole
    (first,), _ = render_jinja_template([PLAIN[:2]], chat_template=shipped(name), eos_token="<eos>")
    found = rendered(name, TALK, [1])
    assert text(found[0].tokens.token_ids) == first
    assert [each.messages for each in found] == [2]


@pytest.mark.parametrize(
    "name", ["cohere", "cohere2", "gemma3", "lfm2", "qwen2_5", "qwen3", "qwen3_instruct_2507"]
)
def test_what_trains_is_what_trl_marks_as_the_assistants(name: str) -> None:
    (whole,), (marks,) = render_jinja_template(
        [PLAIN], chat_template=shipped(f"{name}_training"), return_assistant_tokens_mask=True
    )
    # The line break around a turn is the template's, and no engine samples it after the end.
    marked = [whole[start:end].strip() for start, end in marks]
    assert trained_texts(rendered(name, TALK)) == marked


def test_turns_stay_in_one_record_where_the_template_lets_them() -> None:
    (found,) = rendered("qwen2_5", TALK)
    assert len(found.tokens.spans) == 2
    assert found.messages == 4
    assert not found.tokens.logprobs


def test_a_turn_whose_thoughts_are_dropped_later_trains_with_them_and_apart() -> None:
    thought = pb.Message(role=pb.ROLE_ASSISTANT, content="Yes.", reasoning="why")
    found = rendered("qwen3", [ASKED, thought, MORE, NO])
    assert trained_texts(found) == [
        "<think>\nwhy\n</think>\n\nYes.<|im_end|>",
        "<think>\n\n</think>\n\nNo.<|im_end|>",
    ]
    assert "why" not in text(found[1].tokens.token_ids)
    # Without thinking the prompt itself closes them, and they are not sampled.
    assert trained_texts(rendered("qwen3", TALK[:2], enable_thinking=False)) == ["Yes.<|im_end|>"]


def test_calls_train_and_results_do_not() -> None:
    call = pb.ToolCall(id="call00000", name="look", arguments_json='{"at": 1}')
    calls = pb.Message(role=pb.ROLE_ASSISTANT, tool_calls=[call])
    seen = pb.Message(role=pb.ROLE_TOOL, content="a lamp", tool_call_id="call00000", name="look")
    found = rendered("qwen2_5", [ASKED, calls, seen, NO], tools=[LOOK])
    assert trained_texts(found) == [
        '<tool_call>\n{"name": "look", "arguments": {"at": 1}}\n</tool_call><|im_end|>',
        "No.<|im_end|>",
    ]
    # In words, for a model whose template has no tools.
    as_text = rendered("gemma3", [ASKED, calls, seen, NO], tools=[LOOK])
    assert trained_texts(as_text)[0] == 'call: look {"at": 1}<end_of_turn>'


def test_a_template_that_ends_no_turn_has_the_engines_end() -> None:
    template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    found = demonstrations(Renderer(TemplateTokenizer(template)), TALK, [], [], "", {})
    assert trained_texts(found) == ["Yes.\n<eos>", "No.\n<eos>"]


def refused(name: str, messages: Sequence[pb.Message], trained: Sequence[int] = ()) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        rendered(name, messages, trained)
    return "; ".join(map(str, caught.value.violations))


def test_what_cannot_be_rendered_is_refused_by_name() -> None:
    assert "messages[1]: the chat template does not go on" in refused("deepseek_r1_distill", TALK)
    assert "system role" in refused("gemma", [SYSTEM, *TALK]).lower()
    assert "alternate" in refused("gemma", [ASKED, MORE, YES])
    assert "none of the assistant's" in refused("qwen3", [SYSTEM])
    assert "trained[0]: got 0" in refused("qwen3", TALK, [0])
    assert "trained: got [3, 1]" in refused("qwen3", TALK, [3, 1])
    assert "trained[0]: got 9" in refused("qwen3", TALK, [9])
    assert "514 turns" in refused("qwen3", TALK * 257)
