"""Images, sounds and files in a request's messages are found, by their place."""

from __future__ import annotations

from typing import Any

import pytest
from podium.core.openai_parts import no_words

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
TEXT = {"type": "text", "text": "What is this?"}


@pytest.mark.parametrize(
    ("body", "place", "kind"),
    [
        (
            {"messages": [{"role": "user", "content": [TEXT, IMAGE]}]},
            "messages[0].content[1].type",
            "image_url",
        ),
        (
            {"messages": ["x", {"content": [{"type": "input_audio"}]}]},
            "messages[1].content[0].type",
            "input_audio",
        ),
        # Of responses, whose items may be parts themselves, and of Anthropic's messages.
        ({"input": [{"type": "input_image"}]}, "input[0].type", "input_image"),
        (
            {"input": [{"type": "function_call_output", "output": [{"type": "input_file"}]}]},
            "input[0].output[0].type",
            "input_file",
        ),
        (
            {"messages": [{"content": [{"type": "tool_result", "content": [{"type": "image"}]}]}]},
            "messages[0].content[0].content[0].type",
            "image",
        ),
    ],
)
def test_what_is_no_text_is_named_with_its_place(
    body: dict[str, Any], place: str, kind: str
) -> None:
    (found,) = no_words(body)
    assert found.field == place
    assert found.description == (
        f"got {kind!r}; the model reads text alone: allowed are parts of text"
    )


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": None, "input": "image"},
        {"messages": [{"role": "user", "content": "image_url"}, 7, None]},
        {"messages": [{"content": [TEXT, {"type": "refusal"}, {"type": ["image"]}, "image", 3]}]},
        {"input": [{"type": "function_call", "arguments": "{}"}, {"type": "reasoning"}]},
    ],
)
def test_words_and_what_nobody_knows_are_left_to_the_server(body: dict[str, Any]) -> None:
    assert no_words(body) == []
