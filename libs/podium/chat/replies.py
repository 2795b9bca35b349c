"""What a chat completion says, whatever field of it the server put that in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podium.core.outside import clean, count_of

_BYTES_PER_TOKEN = 3
_MAX_FINISH_CHARS = 64


@dataclass(frozen=True)
class Asked:
    """Which parameters a request had, beside its messages."""

    temperature: float | None = None
    seed: int | None = None
    max_completion_tokens: int | None = None
    refused: tuple[str, ...] = ()
    """Those that the API refuses by name, in alphabetical order."""


@dataclass(frozen=True)
class Reply:
    """What the model answered."""

    text: str
    cut_off: bool = False
    """Whether it ran into its token limit."""
    finish_reason: str = ""
    """Why it ended, in the API's own word; empty where it says none."""
    asked: Asked = Asked()


@dataclass(frozen=True)
class Completion:
    """A reply and the tokens that it took."""

    reply: Reply
    prompt_tokens: int
    completion_tokens: int


def completion_of(body: bytes, asked_bytes: int) -> Completion:
    """The first choice of a response's body.

    Its text is the content, or the texts of its parts, and after them the arguments of
    tool calls. Where both are empty, it is what the model thought aloud. Tokens that the
    server does not count are counted at three bytes each.

    Args:
        asked_bytes: of the conversation that this answers.

    Raises:
        ValueError: it is no chat completion.
    """
    try:
        answer = json.loads(body)
        choice = answer["choices"][0]
        message = choice["message"]
        text = clean(_text(message))
        ended = choice.get("finish_reason")
        usage = answer.get("usage")
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("no chat completion") from error
    counts = usage if isinstance(usage, Mapping) else {}
    prompt, written = (count_of(counts.get(f"{kind}_tokens")) for kind in ("prompt", "completion"))
    if not prompt and not written:
        prompt, written = (-(-n // _BYTES_PER_TOKEN) for n in (asked_bytes, len(text.encode())))
    said = clean(ended[:_MAX_FINISH_CHARS]) if isinstance(ended, str) else ""
    return Completion(Reply(text, ended == "length", said), prompt, written)


def _text(message: Mapping[str, Any]) -> str:
    said = [_content(message.get("content"))]
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            said.append(_content(function.get("arguments")))
    if not any(said):
        said = [_content(message.get("reasoning_content") or message.get("reasoning"))]
    return "\n".join(filter(None, said))


def _content(value: Any) -> str:
    """Text as it is; of parts, the texts among them; any other value as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        return json.dumps(value)
    parts = [part if isinstance(part, str) else _part(part) for part in value]
    return "".join(parts)


def _part(part: Any) -> str:
    text = part.get("text") if isinstance(part, Mapping) else None
    return text if isinstance(text, str) else ""
