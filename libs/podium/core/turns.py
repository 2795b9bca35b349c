"""The turns of an episode: where each was said, and the step of the environment it led to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from podium.core.token_records import spans_by_turn
from podium.types.v1 import trajectory_pb2 as pb


@dataclass(frozen=True)
class Turn:
    """One turn: a message of the assistant's, and what came of it."""

    number: int
    """From 1, over all histories."""
    step: pb.Transition | None
    """What the environment answered with; None where the episode ended before, or nobody told."""


@dataclass(frozen=True)
class HistoryPart:
    """A history, and what of it no history before has."""

    repeated: int
    """How many of its first messages are those of the one before of its conversation."""
    turns: dict[int, Turn]
    """By the place of its message in the history, in order."""


def parts_of(trajectory: pb.Trajectory) -> list[HistoryPart]:
    """Each history's own turns, with the nth step of a conversation at its nth turn.

    A history begun anew holds the words so far: what it repeats is no turn again. Where tokens
    say how many turns were sampled in it, those are its last messages of the assistant's; one
    before them that an environment wrote, as an example, is none.
    """
    steps: dict[str, list[pb.Transition]] = defaultdict(list)
    for step in trajectory.transitions:
        steps[step.conversation].append(step)
    taken: dict[str, int] = defaultdict(int)
    earlier: dict[str, Sequence[pb.Message]] = {}
    number = 0
    parts = []
    for history in trajectory.histories:
        name = history.conversation
        repeated = _shared(earlier.get(name, ()), history.messages)
        earlier[name] = history.messages
        said = [at for at, each in enumerate(history.messages) if each.role == pb.ROLE_ASSISTANT]
        if sampled := len(spans_by_turn(history.tokens)):
            said = said[-sampled:]
            # A conversation that forgets may go as the one before went, word for word.
            repeated = min([repeated, *said[:1]])
        else:
            said = [at for at in said if at >= repeated]
        turns = {}
        for at in said:
            number += 1
            left = steps[name][taken[name] : taken[name] + 1]
            taken[name] += 1
            turns[at] = Turn(number, left[0] if left else None)
        parts.append(HistoryPart(repeated, turns))
    return parts


def count(trajectory: pb.Trajectory) -> int:
    """How many turns the episode has."""
    return sum(len(part.turns) for part in parts_of(trajectory))


def _shared(before: Sequence[pb.Message], after: Sequence[pb.Message]) -> int:
    shared = 0
    for one, other in zip(before, after, strict=False):
        if one != other:
            break
        shared += 1
    return shared
