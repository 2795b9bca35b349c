"""Parts of messages that are no words: a model of text alone cannot be shown them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from podium.core.errors import Violation

# Of chat completions, of responses, of Anthropic's messages, and vLLM's own.
_KINDS = frozenset(
    {
        *("image_url", "image", "input_image", "image_pil", "image_embeds"),
        *("input_audio", "audio_url", "audio", "audio_embeds"),
        *("video_url", "video", "input_video"),
        *("file", "input_file", "document"),
    }
)


def no_words(body: Mapping[str, Any]) -> list[Violation]:
    """The parts of a request's messages that are images, sounds or files; never raises.

    Each is named by its place, such as `messages[0].content[1].type`.
    """
    return [
        Violation(place, f"got {kind!r}; the model reads text alone: allowed are parts of text")
        for key in ("messages", "input")
        for place, kind in _found(body.get(key), key)
    ]


def _found(value: Any, place: str) -> Iterator[tuple[str, str]]:
    for at, item in enumerate(value if isinstance(value, list) else ()):
        if not isinstance(item, Mapping):
            continue
        here = f"{place}[{at}]"
        kind = item.get("type")
        if isinstance(kind, str) and kind in _KINDS:
            yield f"{here}.type", kind
        # A tool's result has parts of its own.
        yield from _found(item.get("content"), f"{here}.content")
        yield from _found(item.get("output"), f"{here}.output")
