"""Renders of the recent messages alone, against those of whole conversations, token for token."""

from __future__ import annotations

import random
from typing import Any

import pytest
from podium.core.errors import FailedPreconditionError, InvalidArgumentError
from podium.core.outside import struct_of
from podium.types.v1 import trajectory_pb2 as pb
from podium_inference.domain import metrics
from podium_inference.domain.render import Renderer
from prometheus_client import Counter
from support.template_tokenizer import TemplateTokenizer, shipped

TURNS = 9
LOOK = pb.Tool(name="look", description="Looks.")
FIND = pb.Tool(
    name="find",
    description="Finds what is looked for.",
    parameters=struct_of(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Of what is sought."},
                "among": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["name"],
        }
    ),
)
TEMPLATES = [
    "cohere2",
    "deepseek_r1_distill",
    "deepseekv3",
    "gemma3",
    "gemma4",
    "glm4moe",
    "gptoss",
    "lfm2_2_5",
    "llama3_1",
    "llama3_2",
    "muse_glimmer",
    "nemotron_3_nano",
    "phi3_5",
    "qwen2_5",
    "qwen3",
    "qwen3_5_think",
    "qwen3_6_training",
    "qwen3_8",
    "qwen3_training",
    "qwen3_vl",
]


def said(role: pb.Role.ValueType, content: str, **fields: Any) -> pb.Message:
    return pb.Message(role=role, content=content, **fields)


def conversation(seed: int, tools: bool, thoughts: str) -> tuple[list[pb.Message], list[int]]:
    """A conversation of all kinds of turns, and how many messages each of its prompts has.

    `thoughts` are in the content, apart from it, or not there.
    """
    draw = random.Random(seed)
    messages = [said(pb.ROLE_SYSTEM, "Be brief.")] if seed % 2 else []
    messages.append(said(pb.ROLE_USER, "one?"))
    prompts = []
    for turn in range(TURNS):
        turn_thinks = bool(thoughts) and draw.random() < 0.6
        inline = f"<think>\nwhy {turn}\n</think>\n\n" if turn_thinks and thoughts == "in" else ""
        apart = {"reasoning": f"why {turn}"} if turn_thinks and thoughts == "apart" else {}
        if tools and draw.random() < 0.6:
            calls = [
                pb.ToolCall(id=f"call{turn:03d}{n:02d}", name="look", arguments_json='{"at": 1}')
                for n in range(draw.choice([1, 1, 2]))
            ]
            messages.append(said(pb.ROLE_ASSISTANT, inline.strip(), tool_calls=calls, **apart))
            messages += [
                said(pb.ROLE_TOOL, f" found {turn} ", tool_call_id=call.id, name="look")
                for call in calls
            ]
            if draw.random() < 0.2:
                messages.append(said(pb.ROLE_USER, "Error: mind this."))
        else:
            messages.append(said(pb.ROLE_ASSISTANT, f"{inline}answer {turn}", **apart))
            messages.append(said(pb.ROLE_USER, f"and {turn}?"))
        prompts.append(len(messages))
    return messages, prompts


def covered_by(messages: list[pb.Message], end: int) -> int:
    return max(n for n, m in enumerate(messages[:end], 1) if m.role == pb.ROLE_ASSISTANT)


def outcome(renderer: Renderer, *request: Any) -> Any:
    try:
        return renderer.following(*request)
    except (FailedPreconditionError, InvalidArgumentError) as error:
        return str(error)


def value(counter: Counter) -> float:
    return counter._value.get()  # type: ignore[attr-defined]


@pytest.mark.parametrize("thoughts", ["", "in", "apart"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_each_turns_tokens_are_those_of_the_whole_conversation(name: str, thoughts: str) -> None:
    quick = Renderer(TemplateTokenizer(shipped(name)))
    whole = Renderer(TemplateTokenizer(shipped(name)), always_whole=True)
    before = value(metrics.RENDERS.labels("recent"))
    compared = 0
    # Many a template has `text` for its own.
    for call_format in dict.fromkeys(("", quick.call_format, "text")):
        tools = [FIND, LOOK] if call_format else []
        for seed in (0, 1):
            messages, prompts = conversation(seed, bool(tools), thoughts)
            for end in prompts:
                covered = covered_by(messages, end)
                request = (messages[:end], tools, [5], covered, call_format)
                found = outcome(quick, *request)
                assert outcome(whole, *request) == found
                compared += 1
                if "refuses" in str(found):
                    break
    assert value(metrics.RENDERS.labels("recent")) - before > compared / 2


@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize("name", ["qwen3", "qwen2_5", "llama3_1"])
def test_a_turn_renders_as_many_messages_after_400_turns_as_after_ten(
    name: str, tools: bool
) -> None:
    tokenizer = TemplateTokenizer(shipped(name))
    renderer = Renderer(tokenizer)
    messages = [said(pb.ROLE_USER, "one?")]
    rendered = []
    for turn in range(400):
        call = pb.ToolCall(id=f"call{turn:05d}", name="look", arguments_json='{"at": 1}')
        answer = said(pb.ROLE_ASSISTANT, "" if tools else "answer", tool_calls=[call] * tools)
        told = said(pb.ROLE_TOOL, "seen", tool_call_id=call.id, name="look")
        messages += [answer, told if tools else said(pb.ROLE_USER, "and?")]
        tokenizer.rendered = 0
        format_of_calls = renderer.call_format if tools else ""
        renderer.following(messages, [LOOK] * tools, [5], len(messages) - 1, format_of_calls)
        rendered.append(tokenizer.rendered)
    assert rendered[399] == rendered[9] <= 24
    # Those that were compared with the whole: at 4, 16, 64, 256 messages, and the first.
    assert sum(count > 24 for count in rendered) <= 5
    assert sum(rendered) < 400 * 24


# Numbers the user's messages.
COUNTS = (
    "{% for m in messages %}<{{ m.role }}{% if m.role == 'user' %} {{ loop.index }}{% endif %}>"
    "{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
# From the fortieth message on, which trying it out does not reach.
COUNTS_LATE = COUNTS.replace("m.role == 'user'", "m.role == 'user' and loop.index > 40")


def talk(renderer: Renderer, turns: int) -> list[str]:
    messages = [said(pb.ROLE_USER, "one?")]
    found = []
    for _ in range(turns):
        messages += [said(pb.ROLE_ASSISTANT, "answer"), said(pb.ROLE_USER, "and?")]
        found.append(text_of(outcome(renderer, messages[:], (), [5], len(messages) - 1, "")))
    return found


def text_of(ids: list[int]) -> str:
    return bytes(number - 1 for number in ids[1:]).decode()


def test_a_template_that_looks_at_the_whole_is_given_the_whole() -> None:
    before = value(metrics.RENDERS.labels("recent")), value(metrics.RENDER_MISMATCHES)
    found = talk(Renderer(TemplateTokenizer(COUNTS)), 10)
    assert found == [f"<user {number}>and?<assistant>" for number in range(3, 23, 2)]
    assert (value(metrics.RENDERS.labels("recent")), value(metrics.RENDER_MISMATCHES)) == before


def test_one_that_does_so_late_is_found_out_and_counted() -> None:
    before = value(metrics.RENDER_MISMATCHES)
    found = talk(Renderer(TemplateTokenizer(COUNTS_LATE)), 40)
    assert value(metrics.RENDER_MISMATCHES) == before + 1
    # Compared at 64 messages; what had been sampled by then stays as the model saw it.
    assert found[:31] == ["<user>and?<assistant>"] * 31
    assert found[31:] == [f"<user {number}>and?<assistant>" for number in range(65, 82, 2)]


class ToldTokenizer(TemplateTokenizer):
    """Remembers the names of the tools that the last render was told of."""

    def apply_chat_template(self, conversation: Any, **options: Any) -> str:
        self.told = [tool["function"]["name"] for tool in options["tools"] or ()]
        return super().apply_chat_template(conversation, **options)


# Repeats the tools' names after each question that is asked in this way.
REMINDS = (
    "{% for m in messages %}<{{ m.role }}{% if m.role == 'user' and ASKED %} of "
    "{{ tools|map(attribute='function.name')|join }}{% endif %}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.mark.parametrize(
    ("template", "told"),
    [(shipped("qwen3"), ["look"]), (REMINDS.replace("ASKED", "true"), ["find", "look", "see"])],
)
def test_one_tool_stands_for_all_where_a_template_writes_none_after_a_turn(
    template: str, told: list[str]
) -> None:
    tokenizer = ToldTokenizer(template)
    renderer = Renderer(tokenizer)
    tools = [FIND, LOOK, pb.Tool(name="see", description="Sees.")]
    messages = [said(pb.ROLE_USER, "one?")]
    before = value(metrics.RENDER_MISMATCHES)
    for turn in range(1, 6):
        messages += [said(pb.ROLE_ASSISTANT, "answer"), said(pb.ROLE_USER, "and?")]
        found = renderer.following(messages, tools, [5], 2 * turn, "hermes")
    assert tokenizer.told == told
    assert ("of findlooksee" in text_of(found)) is (len(told) > 1)
    assert value(metrics.RENDER_MISMATCHES) == before


def test_a_template_that_tells_of_tools_late_is_found_out_and_told_of_all() -> None:
    # Trying it out, nobody asks in this way.
    tokenizer = ToldTokenizer(REMINDS.replace("ASKED", "m.content == 'now?'"))
    renderer = Renderer(tokenizer)
    messages = [said(pb.ROLE_USER, "one?")]
    mismatches, recent = value(metrics.RENDER_MISMATCHES), metrics.RENDERS.labels("recent")
    found = []
    # The eighth turn's is compared with the whole.
    for turn, question in enumerate(["and?"] * 7 + ["now?"] * 2, 1):
        messages += [said(pb.ROLE_ASSISTANT, "answer"), said(pb.ROLE_USER, question)]
        before = value(recent)
        ids = renderer.following(messages, [FIND, LOOK], [5], 2 * turn, "hermes")
        found.append(text_of(ids))
    assert found[6:] == ["<user>and?<assistant>"] + ["<user of findlook>now?<assistant>"] * 2
    assert value(metrics.RENDER_MISMATCHES) == mismatches + 1
    assert value(recent) == before + 1


def test_what_the_recent_messages_alone_refuse_is_asked_of_the_whole() -> None:
    late = "{% if messages|length < 20 and messages[0].content == 'many' and messages|length > 3 %}"
    template = (
        late
        + "{{ raise_exception('too few') }}{% endif %}"
        + COUNTS.replace("m.role == 'user'", "false")
    )
    messages = [said(pb.ROLE_USER, "many")]
    messages += [said(pb.ROLE_ASSISTANT, "answer"), said(pb.ROLE_USER, "many")] * 20
    before = value(metrics.RENDER_MISMATCHES)
    found = outcome(Renderer(TemplateTokenizer(template)), messages, (), [5], 40, "")
    assert text_of(found) == "<user>many<assistant>"
    assert value(metrics.RENDER_MISMATCHES) == before + 1
