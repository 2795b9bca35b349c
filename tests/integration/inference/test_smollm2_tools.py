"""The template that the page prints: SmolLM2 is shown tools, and its calls are read."""

from __future__ import annotations

from pathlib import Path

from podium.core.tool_calls import parse_tool_calls
from podium.local.models import resolve
from podium.types.v1 import trajectory_pb2 as pb
from podium_inference.domain.render import Renderer
from support.template_tokenizer import TemplateTokenizer

ROOT = Path(__file__).parents[3]
TEMPLATE = (ROOT / "examples/smollm2_tools.jinja").read_text()
SEARCH = pb.Tool(name="search", description="Looks for words.")
SYSTEM = pb.Message(role=pb.ROLE_SYSTEM, content="You answer.")
QUESTION = pb.Message(role=pb.ROLE_USER, content="Who is Olm?")
CALLED = (
    '<tool_call>\n{"name": "search", "arguments": {"query": "Olm"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "search", "arguments": {"query": "Esk"}}\n</tool_call>'
)


def text_of(renderer: Renderer, messages: list[pb.Message], tools: list[pb.Tool]) -> str:
    ids = renderer.first(messages, tools, renderer.format_of(tools, 0))
    return bytes(number - 1 for number in ids).decode()


def renderer(template: str) -> Renderer:
    return Renderer(TemplateTokenizer(template, "<|im_end|>", ["<|im_start|>"]))


def test_the_page_prints_it_as_it_is() -> None:
    assert f"```jinja\n{TEMPLATE}```\n" in (ROOT / "docs/templates.md").read_text()
    assert len(TEMPLATE.splitlines()) <= 30


def test_tools_are_shown_and_calls_are_hermes() -> None:
    own = renderer(TEMPLATE)
    assert own.format_of([SEARCH], 0) == "hermes"
    assert own.shows_tools
    shown = text_of(own, [SYSTEM, QUESTION], [SEARCH])
    assert shown.startswith("<|im_start|>system\nYou answer.\n\nYou may call these functions:\n")
    assert '"name": "search", "description": "Looks for words."' in shown
    assert shown.endswith("<|im_start|>user\nWho is Olm?<|im_end|>\n<|im_start|>assistant\n")


def test_what_a_model_called_is_written_as_it_said_it() -> None:
    turn = parse_tool_calls(CALLED, "hermes")
    said = pb.Message(role=pb.ROLE_ASSISTANT, content=turn.content, tool_calls=turn.tool_calls)
    result = pb.Message(role=pb.ROLE_TOOL, content="A novel.", tool_call_id=said.tool_calls[0].id)
    text = text_of(renderer(TEMPLATE), [QUESTION, said, result], [SEARCH])
    assert [call.name for call in said.tool_calls] == ["search", "search"]
    assert f"<|im_start|>assistant\n{CALLED}<|im_end|>\n" in text
    assert (
        "<|im_start|>user\n<tool_response>\nA novel.\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    ) in text


def test_without_tools_it_is_the_models_own() -> None:
    own = (resolve("smollm2-135m-instruct") / "chat_template.jinja").read_text()
    answer = pb.Message(role=pb.ROLE_ASSISTANT, content="A novel.")
    for messages in ([QUESTION], [SYSTEM, QUESTION], [QUESTION, answer, QUESTION]):
        assert text_of(renderer(TEMPLATE), messages, []) == text_of(renderer(own), messages, [])
