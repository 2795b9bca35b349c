"""Tokenizers as the hub has them: without an end, without a template."""

from __future__ import annotations

import pytest
from podium.core.errors import InvalidArgumentError
from podium.types.v1 import trajectory_pb2 as pb
from podium_inference.domain.render import Renderer
from support.template_tokenizer import TemplateTokenizer

ASKED = pb.Message(role=pb.ROLE_USER, content="hi")
SAID = pb.Message(role=pb.ROLE_ASSISTANT, content="ho")
WITH_CALLS = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for call in m.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>"
    "{% endfor %}\n{% endfor %}"
)


def test_a_tokenizer_that_names_no_end_renders() -> None:
    """Its template writes none, and the engine stops where generation_config.json says."""
    renderer = Renderer(TemplateTokenizer(WITH_CALLS, eos_token=None))
    assert renderer.call_format == "hermes"
    assert renderer.end == ""
    assert renderer.until_end("ho\n") is None
    assert renderer.first([ASKED, SAID, ASKED], (), "")


def test_a_special_token_may_be_the_end_of_one_that_names_none() -> None:
    renderer = Renderer(TemplateTokenizer(WITH_CALLS, eos_token=None, ends=("<|im_end|>",)))
    assert renderer.until_end("ho<|im_end|>\n") == "ho<|im_end|>"


def test_a_model_without_a_template_says_what_names_one() -> None:
    """A base model: what it says is rendered nowhere, and no traceback of a template's is told."""
    renderer = Renderer(TemplateTokenizer(None))
    assert not renderer.has_template
    assert renderer.call_format == "text"
    with pytest.raises(InvalidArgumentError) as caught:
        renderer.first([ASKED], (), "")
    assert "PODIUM_INFERENCE_CHAT_TEMPLATE names one" in caught.value.message
    assert Renderer(TemplateTokenizer(None), chat_template=WITH_CALLS).first([ASKED], (), "")
