"""Which end of a conversation tells what its template writes after the sampled turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from podium.types.v1 import trajectory_pb2 as pb


@dataclass(frozen=True)
class Recent:
    """A shorter conversation that ends as the whole one does."""

    messages: list[pb.Message]
    covered: int
    """How many of them stand for those that the record holds."""
    due: bool
    """Whether to compare it with the whole one: at 4, 16, 64, … messages, so that all
    comparisons of an episode together cost as much as a few of its turns."""


def recent(messages: Sequence[pb.Message], covered: int, *, results_ask: bool) -> Recent | None:
    """The leading system messages, a question, and all from the turn before the sampled one on.

    Templates look back to the last question, to drop the thinking of what came before it. So
    where somebody asks anew, the turns since the last question are there as well; else, among
    tool results, the question and the turn before are enough.

    Args:
        covered: `messages[covered - 1]` is the sampled turn.
        results_ask: whether tool results are written as the user's words.

    Returns:
        None where that is the whole conversation.
    """
    sampled = covered - 1
    before = _last(messages, (pb.ROLE_ASSISTANT,), sampled)
    if before < 0:
        return None
    asks = (pb.ROLE_USER, pb.ROLE_TOOL) if results_ask else (pb.ROLE_USER,)
    start = before
    if any(message.role in asks for message in messages[covered:]):
        asked = _last(messages, asks, sampled)
        if asked < 0:
            return None
        start = min(before, asked)
    question = start if messages[start].role in asks else _last(messages, asks, start)
    system = 0
    while system < len(messages) and messages[system].role == pb.ROLE_SYSTEM:
        system += 1
    head = [*range(system), *([question] if question < start else [])]
    if question < 0 or len(head) >= start:
        return None
    kept = [messages[place] for place in head]
    return Recent(
        [*kept, *messages[start:]],
        covered=len(head) + covered - start,
        due=_step(covered) != _step(before + 1),
    )


def _last(messages: Sequence[pb.Message], roles: Sequence[int], end: int) -> int:
    """The place of the last message of these roles before `end`; -1 for none."""
    return next((place for place in range(end - 1, -1, -1) if messages[place].role in roles), -1)


def _step(count: int) -> int:
    """Grows by one where the count becomes fourfold."""
    return (count.bit_length() - 1) // 2
