"""What a judge is asked, and how its answer is read, whatever the scorer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from podium_judge.domain.verdict import ATTEMPT, Subject


@dataclass(frozen=True)
class JudgePrompt:
    """A request to the judge model, and how to read its answer."""

    system: str
    user: str
    labels: tuple[str, ...]
    """The ids under which an answer has its scores, in the question's order."""
    places: tuple[int, ...] = ()
    """`places[i]` is where attempt i of the question stands, from 1; its id as a number. None
    where nothing is compared."""
    bytes_left_out: int = 0
    subject: Subject = ATTEMPT
    """What the labels are of."""


class Question(Protocol):
    """What is asked: the same for every judge."""

    def prompt(self, seed: str, max_tokens: int = 0) -> JudgePrompt:
        """The question in words; `seed` fixes what order there is.

        `max_tokens` is about the most tokens of it, the question's own for 0.
        """
        ...

    def digest(self) -> str:
        """Hex SHA-256 of all that an answer depends on."""
        ...

    def tokens(self) -> tuple[int, int]:
        """About how many a judge reads and writes about it."""
        ...
