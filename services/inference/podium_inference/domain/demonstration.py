"""A whole conversation as tokens, and which of them the assistant would have sampled.

Each turn is rendered as it was when it was the last one: its prompt as the template writes what
came before, its words as the template writes them then. A turn that the next one's prompt
begins with stays in one record with it; where a template writes earlier turns anew, as those do
that drop old thoughts, each has a record of its own, and nothing trains that is never sampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podium.core.errors import InvalidArgumentError, Violation
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.types.v1 import trajectory_pb2 as pb

from podium_inference.domain.render import Renderer

MOST_TURNS = 512
"""Each is rendered with all that came before it, so the work grows with their square."""

_SHOWN = 40


@dataclass(frozen=True)
class _Turn:
    """A finished turn in tokens."""

    prompt: list[int]
    sampled: list[int]
    """With the token that ends it."""
    whole: list[int]
    """Both, and what the template writes after the end."""


def demonstrations(
    renderer: Renderer,
    messages: Sequence[pb.Message],
    tools: Sequence[pb.Tool],
    trained: Sequence[int],
    call_format: str,
    arguments: Mapping[str, Any],
) -> list[inference_pb.Demonstration]:
    """The records of a conversation; every trained turn is a span of one of them.

    Args:
        trained: which messages train, ascending; none for all of the assistant's.
        call_format: see `Renderer.format_of`.
        arguments: what else the template is told.

    Raises:
        InvalidArgumentError: a message that trains is none of the assistant's, there is none, or
            the template refuses the conversation or does not go on from its own prompt.
    """
    found: list[inference_pb.Demonstration] = []
    for place in _places(messages, trained):
        turn = _turn(renderer, messages, tools, place, call_format, arguments)
        last = found[-1] if found else None
        if last is not None and _begins(turn.prompt, last.tokens):
            made = last
        else:
            made = inference_pb.Demonstration()
            found.append(made)
        made.messages = place + 1
        made.tokens.token_ids[:] = turn.whole
        made.tokens.spans.add(
            start=len(turn.prompt),
            length=len(turn.sampled),
            temperature=1,
            finish_reason=pb.FINISH_REASON_STOP,
        )
    return found


def _places(messages: Sequence[pb.Message], trained: Sequence[int]) -> list[int]:
    own = [n for n, message in enumerate(messages) if message.role == pb.ROLE_ASSISTANT]
    places = list(trained) or own
    violations = [
        Violation(f"trained[{n}]", f"got {place}; allowed are messages of the assistant's: {own}")
        for n, place in enumerate(places)
        if place not in own
    ]
    if places != sorted(set(places)):
        violations.append(Violation("trained", f"got {places}; allowed is ascending"))
    if len(places) > MOST_TURNS:
        text = f"got {len(places)} turns that train; allowed are {MOST_TURNS}: divide it"
        violations.append(Violation("messages", text))
    if not places:
        violations.append(Violation("messages", "got none of the assistant's; nothing trains"))
    if violations:
        raise InvalidArgumentError(violations=violations)
    return places


def _turn(
    renderer: Renderer,
    messages: Sequence[pb.Message],
    tools: Sequence[pb.Tool],
    place: int,
    call_format: str,
    arguments: Mapping[str, Any],
) -> _Turn:
    before, whole = renderer.finished(messages[: place + 1], tools, call_format, arguments)
    if not whole.startswith(before):
        text = (
            f"the chat template does not go on from its own prompt, which ends in"
            f" {before[-_SHOWN:]!r}, with this turn: it writes {_differing(before, whole)!r}"
        )
        raise InvalidArgumentError(violations=[Violation(f"messages[{place}]", text)])
    said = whole[len(before) :]
    ended = renderer.until_end(said)
    if ended is None:
        # A template that ends no turn leaves that to the engine, which stops at this token.
        ended, whole = said + renderer.end, whole + renderer.end
    prompt = renderer.encode(before)
    sampled = renderer.encode(before + ended)
    # Where a token lies over the border, a model that is given the prompt cannot sample it.
    goes_on = sampled[: len(prompt)] == prompt
    sampled = sampled[len(prompt) :] if goes_on else renderer.encode(ended)
    tokens = [*prompt, *sampled]
    full = renderer.encode(whole)
    return _Turn(prompt, sampled, full if full[: len(tokens)] == tokens else tokens)


def _begins(prompt: Sequence[int], tokens: pb.TokenRecord) -> bool:
    """Whether the prompt begins with a record up to its last sampled token."""
    span = tokens.spans[-1]
    end = span.start + span.length
    return list(prompt[:end]) == list(tokens.token_ids[:end])


def _differing(before: str, whole: str) -> str:
    same = next((n for n, (a, b) in enumerate(zip(before, whole, strict=False)) if a != b), 0)
    return whole[same : same + _SHOWN]
