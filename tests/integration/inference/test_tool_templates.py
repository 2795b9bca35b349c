"""How the renderer finds out how a model writes calls, with templates of the families' shapes."""

from __future__ import annotations

from typing import Any

import pytest
from podium.core.errors import FailedPreconditionError
from podium.core.tool_calls import parse_tool_calls
from podium.types.v1 import spec_pb2
from podium.types.v1 import trajectory_pb2 as pb
from podium_inference.domain.render import Renderer
from support.template_tokenizer import TemplateTokenizer

TOOLS = "{% if tools %}TOOLS {{ tools | tojson }}\n{% endif %}"
TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}"
OPEN = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def chat(calls: str, tools: str = TOOLS) -> str:
    """A template of which `calls` writes an assistant's tool calls."""
    return (
        tools
        + "{% for m in messages %}"
        + TURN
        + "{% if m.tool_calls %}"
        + calls
        + "{% endif %}<eos>\n{% endfor %}"
        + OPEN
    )


EACH = "{% for c in m.tool_calls %}{% set f = c.function %}"
FAMILIES = {
    "hermes": EACH
    + '<tool_call>\n{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}",
    "llama3_json": EACH
    + '{"name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}{% endfor %}',
    "mistral": "[TOOL_CALLS] [" + EACH + "{{ (f | tojson)[:-1] }}, "
    '"id": "{{ c.id }}"}{% endfor %}]',
    "kimi_k2": "<|tool_calls_section_begin|>" + EACH + "<|tool_call_begin|>functions.{{ f.name }}:0"
    "<|tool_call_argument_begin|>{{ f.arguments | tojson }}<|tool_call_end|>{% endfor %}"
    "<|tool_calls_section_end|>",
    # As DeepSeek's: the arguments are put together as text, which a mapping would break.
    "deepseek_v3": "<｜tool▁calls▁begin｜>"
    + EACH
    + "{{ '<｜tool▁call▁begin｜>' + c.type + '<｜tool▁sep｜>'"
    " + f.name + '\n```json\n' + f.arguments + '\n```<｜tool▁call▁end｜>' }}{% endfor %}"
    "<｜tool▁calls▁end｜>",
}


def text_of(ids: list[int]) -> str:
    return bytes(number - 1 for number in ids if number).decode()


def said(role: pb.Role.ValueType, content: str, **fields: Any) -> pb.Message:
    return pb.Message(role=role, content=content, **fields)


SEARCH = pb.Tool(name="search", description="Looks for words.")
QUESTION = said(pb.ROLE_USER, "Who is Olm?")


def asked(renderer: Renderer, wanted: spec_pb2.ToolFormat.ValueType = 0) -> str:
    return renderer.format_of([SEARCH], wanted)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_format_is_the_one_that_reads_what_the_template_writes(family: str) -> None:
    renderer = Renderer(TemplateTokenizer(chat(FAMILIES[family])))
    assert asked(renderer) == asked(renderer, spec_pb2.TOOL_FORMAT_NATIVE) == family
    assert asked(renderer, spec_pb2.TOOL_FORMAT_TEXT) == "text"
    assert renderer.format_of([], spec_pb2.TOOL_FORMAT_NATIVE) == ""


@pytest.mark.parametrize(
    "template",
    [
        chat(FAMILIES["hermes"], tools=""),
        chat("{{ raise_exception('no tools here') }}"),
        chat("I call {{ m.tool_calls[0].function.name }}!"),
    ],
    ids=["shows no tools", "refuses calls", "writes them in another way"],
)
def test_a_template_without_a_known_format_is_text_and_native_is_refused(template: str) -> None:
    renderer = Renderer(TemplateTokenizer(template))
    assert asked(renderer) == "text"
    with pytest.raises(FailedPreconditionError) as caught:
        asked(renderer, spec_pb2.TOOL_FORMAT_NATIVE)
    assert caught.value.reason == "NO_TOOL_TEMPLATE"
    assert renderer.shows_tools == template.startswith(TOOLS)


def test_a_setting_is_stronger_than_what_the_template_shows() -> None:
    template = chat("I call {{ m.tool_calls[0].function.name }}!")
    assert asked(Renderer(TemplateTokenizer(template), "mistral")) == "mistral"


@pytest.mark.parametrize("family", FAMILIES)
def test_results_follow_the_sampled_calls_as_the_template_writes_them(family: str) -> None:
    tokenizer = TemplateTokenizer(chat(FAMILIES[family]))
    renderer = Renderer(tokenizer)
    prompt = renderer.first([QUESTION], [SEARCH], family)
    call = pb.ToolCall(id="call00000", name="search", arguments_json='{"query": "Olm"}')
    turn = said(pb.ROLE_ASSISTANT, "", tool_calls=[call])
    result = said(pb.ROLE_TOOL, "A novel.", tool_call_id="call00000", name="search")
    sampled = [*prompt, 9001, 0]
    ids = renderer.following([QUESTION, turn, result], [SEARCH], sampled, 2, family)
    assert ids[: len(sampled)] == sampled
    assert text_of(ids[len(sampled) :]) == (
        "\n<|im_start|>tool\nA novel.<eos>\n<|im_start|>assistant\n"
    )
    # A turn that max_tokens cut has no end of its own.
    cut = renderer.following([QUESTION, turn, result], [SEARCH], sampled[:-1], 2, family)
    assert text_of(cut[len(sampled) - 1 :]).startswith("<eos>\n<|im_start|>tool")


def test_as_text_the_tools_are_described_and_results_come_from_the_user() -> None:
    renderer = Renderer(TemplateTokenizer(chat("", tools="")))
    system = said(pb.ROLE_SYSTEM, "You answer.")
    prompt = renderer.first([system, QUESTION], [SEARCH], "text")
    shown = text_of(prompt)
    assert shown.startswith("<|im_start|>system\nYou answer.\n\nYou can call tools.")
    assert "search: Looks for words." in shown
    turn = parse_tool_calls('call: search {"query": "Olm"}\ncall: search {"query": "Esk"}', "text")
    results = [
        said(pb.ROLE_TOOL, text, tool_call_id=call.id, name="search")
        for call, text in zip(turn.tool_calls, ["A novel.", "A town."], strict=True)
    ]
    more = said(pb.ROLE_USER, "Go on.")
    messages = [system, QUESTION, turn, *results, more]
    ids = renderer.following(messages, [SEARCH], [*prompt, 9001, 0], 3, "text")
    assert text_of(ids[len(prompt) + 2 :]) == (
        "\n<|im_start|>user\nresult of search (call 1):\nA novel.\n"
        "result of search (call 2):\nA town.\nGo on.<eos>\n<|im_start|>assistant\n"
    )


def test_as_text_a_conversation_without_a_system_message_gets_one() -> None:
    renderer = Renderer(TemplateTokenizer(chat("", tools="")))
    prompt = renderer.first([QUESTION], [SEARCH], "text")
    assert text_of(prompt).startswith("<|im_start|>system\nYou can call tools.")
    answer = said(pb.ROLE_ASSISTANT, "A novel.")
    ids = renderer.following(
        [QUESTION, answer, said(pb.ROLE_USER, "Sure?")], [SEARCH], [*prompt, 9001, 0], 2, "text"
    )
    assert text_of(ids[len(prompt) + 2 :]) == (
        "\n<|im_start|>user\nSure?<eos>\n<|im_start|>assistant\n"
    )


def test_as_text_the_calls_of_a_worked_example_are_the_lines_that_are_asked_for() -> None:
    renderer = Renderer(TemplateTokenizer(chat("", tools="")))
    call = pb.ToolCall(id="x", name="search", arguments_json='{"query": "Olm"}')
    example = said(pb.ROLE_ASSISTANT, "I look.", tool_calls=[call])
    result = said(pb.ROLE_TOOL, "A novel.", tool_call_id="x")
    shown = text_of(renderer.first([QUESTION, example, result, QUESTION], [SEARCH], "text"))
    assert 'assistant\nI look.\ncall: search {"query": "Olm"}<eos>' in shown
    assert "user\nresult of search:\nA novel.\nWho is Olm?<eos>" in shown


# As Qwen3's: the thinking of turns before the last question is left out.
STRIPS_THINKING = (
    "{% set ns = namespace(asked=0) %}{% for m in messages %}"
    "{% if m.role == 'user' %}{% set ns.asked = loop.index0 %}{% endif %}{% endfor %}"
    + TOOLS
    + "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if loop.index0 < ns.asked %}{{ (m.content or '').split('</think>')[-1] }}"
    "{% else %}{{ m.content or '' }}{% endif %}"
    "{% if m.tool_calls %}" + FAMILIES["hermes"] + "{% endif %}<eos>\n{% endfor %}" + OPEN
)
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": %d}}\n</tool_call>'


def test_t19_a_template_that_strips_thinking_never_touches_what_was_sampled() -> None:
    renderer = Renderer(TemplateTokenizer(STRIPS_THINKING))
    assert renderer.call_format == "hermes"
    tools = [pb.Tool(name="look", description="Looks.")]
    messages = [said(pb.ROLE_USER, "Begin.")]
    record: list[int] = []
    histories: list[list[int]] = []
    spans: list[tuple[int, int, list[int]]] = []
    for turn in range(8):
        if record:
            try:
                prompt = renderer.following(messages, tools, record, len(messages) - 1, "hermes")
            except FailedPreconditionError as refused:
                if refused.reason != "HISTORY_NOT_CONTINUABLE":
                    raise
                histories.append(record)
                record = []
        if not record:
            prompt = renderer.first(messages, tools, "hermes")
        # What came before is what it was, whatever the template would write of it now.
        assert prompt[: len(record)] == record
        text = f"<think>why {turn}</think>" + (f"Answer {turn}." if turn in (4, 7) else CALL % turn)
        # The engine's own ids, which no rendering of the text gives.
        ids = [1000 + byte for byte in text.encode()] + [TemplateTokenizer.eos_token_id]
        spans.append((len(histories), len(prompt), ids))
        record = [*prompt, *ids]
        message = parse_tool_calls(text, "hermes", turn)
        messages.append(message)
        if message.tool_calls:
            found = said(pb.ROLE_TOOL, "A lamp.", tool_call_id=message.tool_calls[0].id)
            messages.append(found)
        else:
            messages.append(said(pb.ROLE_USER, "Go on."))
    histories.append(record)
    # Its fifth turn's thinking would be taken out of the history, so a new one began there.
    assert [history for history, _, _ in spans] == [0] * 5 + [1] * 3
    for history, start, ids in spans:
        assert histories[history][start : start + len(ids)] == ids
    sampled = [number for ids in histories for number in ids if number >= 1000]
    assert sampled == [number for _, _, ids in spans for number in ids if number >= 1000]
