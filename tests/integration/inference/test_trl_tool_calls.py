"""The calls that TRL's real templates write are read back, and as vLLM's own parsers read them."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

import pytest
from podium.core.openai_messages import tools_to_openai
from podium.core.tool_calls import parse_tool_calls
from podium.core.tool_formats import FORMATS, SPECIAL, TEXT
from podium.types.v1 import trajectory_pb2 as pb
from podium_inference.domain.render import Renderer
from podium_inference.settings import Settings
from support.template_tokenizer import TemplateTokenizer, shipped
from support.written_calls import ALONE, WRITTEN

FOUND = {
    "hermes": ["qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_vl"],
    "llama3_json": ["llama3_1", "llama3_2"],
    "qwen3_coder": [
        *("qwen3_5_nothink", "qwen3_5_think", "qwen3_6", "qwen3_8", "nemotron_3_5_lightning"),
        *("nemotron_3_nano", "nemotron_3_super", "nemotron_3_ultra"),
    ],
    "glm45": ["glm4moe"],
    "openai": ["gptoss"],
    "gemma4": [
        *("gemma4", "gemma4_v2", "gemma4_v3", "gemma4_v4", "gemma4_v5", "diffusion_gemma"),
    ],
    "lfm2": ["lfm2_2_5", "lfm2_2_5_v2", "lfm2_2_5_vl", "lfm2_v2"],
    "muse_glimmer": ["muse_glimmer"],
}
WITHOUT = {
    # It tells the model of tools, and writes no calls: a sampled call would be lost.
    "lfm2",
    # They tell the model of no tools.
    *("cohere", "cohere2", "deepseek_r1_distill", "deepseekv3", "gemma", "gemma3", "idefics3"),
    *("llama3", "llava_next", "phi3", "phi3_5", "qwen2_5_vl", "smolvlm"),
}

HARD = {
    "query": 'say "hi" é 雪 😀\n<b>next</b>, {x: [1]}',
    "number": "12",
    "limit": 3,
    "share": -0.5,
    "all": True,
    "none": None,
    "deep": {"a": [1, {"b": "x, y: z"}], "t": "it", "no": False},
    "list": [1, "two"],
}
TYPES = {
    "query": {"type": "string", "description": "What."},
    "number": {"type": "string", "description": "What."},
    "limit": {"type": "integer", "description": "What."},
    "share": {"type": "number", "description": "What."},
    "all": {"type": "boolean", "description": "What."},
    "none": {"type": ["string", "null"], "description": "What."},
    "deep": {"type": "object", "description": "What."},
    "list": {"type": "array", "description": "What."},
}
SEARCH = pb.Tool(name="search", description="Searches.")
SEARCH.parameters.update({"type": "object", "properties": TYPES, "required": ["query"]})
READ = pb.Tool(name="read", description="Reads.")
READ.parameters.update({"type": "object", "properties": {"id": {"type": "integer"}}})
TOOLS = [SEARCH, READ]
TWO: list[tuple[str, dict[str, Any]]] = [("search", HARD), ("read", {"id": 3})]


def read(message: pb.Message) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments_json)) for call in message.tool_calls]


def names() -> list[str]:
    folder = files("trl").joinpath("chat_templates")
    return [path.name[:-6] for path in folder.iterdir() if path.name.endswith(".jinja")]


def text_of(ids: list[int]) -> str:
    return bytes(number - 1 for number in ids).decode()


def renderer(name: str) -> Renderer:
    return Renderer(TemplateTokenizer(shipped(name), bos_token="<bos>"))


def test_each_of_trls_templates_is_known_to_have_calls_or_not() -> None:
    listed = {name for group in FOUND.values() for name in group} | WITHOUT
    assert listed == {name.removesuffix("_training") for name in names()}


@pytest.mark.parametrize("name", sorted(names()))
def test_calls_that_a_template_writes_are_recognised_and_read_back(name: str) -> None:
    base = name.removesuffix("_training")
    expected = next((each for each, group in FOUND.items() if base in group), TEXT)
    renders = renderer(name)
    assert renders.call_format == expected
    if expected == TEXT:
        return
    asked = pb.Message(role=pb.ROLE_USER, content="?")
    # These templates write one call a turn.
    wanted = TWO[:1] if expected in {"llama3_json", "openai"} else TWO
    calls = [
        pb.ToolCall(id=f"call0000{number}", name=called, arguments_json=json.dumps(arguments))
        for number, (called, arguments) in enumerate(wanted)
    ]
    turn = pb.Message(role=pb.ROLE_ASSISTANT, tool_calls=calls)
    before, whole = renders.finished([asked, turn], TOOLS, expected, {})
    if not whole.startswith(before):
        before = before.removesuffix("<think>\n")
    written = renders.until_end(whole.removeprefix(before)) or whole.removeprefix(before)
    for end in ("<|eot_id|>", renders.end):
        written = written.strip().removesuffix(end)
    message = parse_tool_calls(written, expected, tools=TOOLS)
    assert read(message) == wanted
    assert not message.malformed_calls


# What they write before a turn is not what they write before it while it is sampled.
SPLIT = {"glm4moe_training", *(name for name in names() if name.startswith("nemotron"))}


@pytest.mark.parametrize("name", sorted(set(names()) - SPLIT))
def test_a_result_follows_the_sampled_call_as_the_template_writes_it(name: str) -> None:
    renders = renderer(name)
    if renders.call_format == TEXT:
        return
    asked = pb.Message(role=pb.ROLE_USER, content="one?")
    call = pb.ToolCall(id="call00000", name="read", arguments_json='{"id": 3}')
    turn = pb.Message(role=pb.ROLE_ASSISTANT, tool_calls=[call])
    seen = pb.Message(role=pb.ROLE_TOOL, content="seen", tool_call_id=call.id, name="read")
    prompt = text_of(renders.first([asked], TOOLS, renders.call_format))
    whole = text_of(renders.first([asked, turn, seen], TOOLS, renders.call_format))
    follows = renders.following([asked, turn, seen], TOOLS, [5], 2, renders.call_format)
    suffix = text_of(follows[1:])
    assert "seen" in suffix
    assert whole.startswith(prompt)
    assert whole.endswith(suffix)
    written = whole.removeprefix(prompt).removesuffix(suffix)
    assert read(parse_tool_calls(written, renders.call_format, tools=TOOLS)) == [
        ("read", {"id": 3})
    ]


def test_the_sign_that_ended_a_turn_is_not_written_twice() -> None:
    ends = ["<tool_call|>", "<|tool_response>"]
    renders = Renderer(TemplateTokenizer(shipped("gemma4"), ends=ends))
    asked = pb.Message(role=pb.ROLE_USER, content="one?")
    call = pb.ToolCall(id="call00000", name="read", arguments_json='{"id": 3}')
    turn = pb.Message(role=pb.ROLE_ASSISTANT, tool_calls=[call])
    seen = pb.Message(role=pb.ROLE_TOOL, content="seen", tool_call_id=call.id, name="read")
    # It ends by either: the engine stops at both.
    for last, first in ((1, "<|tool_response>response:"), (2, "response:")):
        ids = renders.following([asked, turn, seen], TOOLS, [last], 2, "gemma4")
        assert text_of(ids[1:]).startswith(first)


def test_the_setting_names_the_formats_that_there_are() -> None:
    for name in ("auto", *FORMATS):
        assert Settings(tool_format=name).tool_format == name
    with pytest.raises(ValueError, match=r"tool_format\n.*got 'qwen'; allowed are auto, apertus, "):
        Settings(tool_format="qwen")


def test_every_format_but_podiums_own_bears_the_name_of_a_parser_of_vllms() -> None:
    pytest.importorskip("vllm")
    from vllm.tool_parsers import ToolParserManager

    assert set(FORMATS) - {TEXT} <= set(ToolParserManager.list_registered())
    assert set(FORMATS) > SPECIAL


def test_the_openai_api_reads_the_models_own_format_where_vllm_can(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pytest.importorskip("vllm")
    from podium_inference.adapters.http.openai_api import parser_of

    assert parser_of("qwen3_coder") == "qwen3_coder"
    assert parser_of(TEXT) == "hermes"
    assert not caplog.records
    assert parser_of("of_a_later_podium") == "hermes"
    assert "of_a_later_podium" in caplog.text


# vLLM's of these needs a package that is not there, a tokenizer of its own, token ids for text,
# or strings and flat arguments alone.
UNLIKE = {"cohere_command3", "functiongemma", "mistral", "openai", "phi4_mini_json"}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("search", {"query": 'say "hi" é', "limit": 3, "deep": {"a": [1, {"b": "x"}]}}),
    ("read", {"id": 3}),
]
TOLD = [{"type": "function", "function": tool["function"]} for tool in tools_to_openai(TOOLS)]
MORE_SIGNS = ["<|tool_call|>", "<|python_tag|>", "<think>", "</think>"]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    pytest.importorskip("vllm")
    from podium.local import models
    from transformers import AutoTokenizer

    turns = "".join(written(CALLS) for written in WRITTEN.values())
    made = AutoTokenizer.from_pretrained(models.resolve("smollm2-135m-instruct"))
    made.add_tokens(sorted({*re.findall("<[^<>]+>", turns), *MORE_SIGNS}))
    return made


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {TEXT} - UNLIKE))
def test_a_turn_of_calls_is_read_as_vllm_reads_it(name: str, tokenizer: Any) -> None:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers import ToolParserManager

    # vLLM's reads one call a turn of InternLM's, and numbers in lists as text of Gemma's.
    calls = {"internlm": CALLS[:1], "gemma4": CALLS[1:]}.get(name, CALLS)
    reply = ("" if name in ALONE else "I look.") + WRITTEN[name](calls)
    request = ChatCompletionRequest(
        messages=[{"role": "user", "content": "?"}], tools=TOLD, model="m", tool_choice="auto"
    )
    parser = ToolParserManager.get_tool_parser(name)(tokenizer, request.tools)
    found = parser.extract_tool_calls(reply, request)
    theirs = [(c.function.name, json.loads(c.function.arguments)) for c in found.tool_calls]
    assert read(parse_tool_calls(reply, name, tools=TOOLS)) == calls == theirs
