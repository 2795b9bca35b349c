"""What a scorer says about an attempt, and about a group."""

from __future__ import annotations

from dataclasses import dataclass

from podium import chat
from podium.types.v1 import trajectory_pb2


@dataclass(frozen=True)
class Score:
    """One scorer's verdict on one attempt. `value` is finite."""

    value: float
    explanation: str = ""
    criteria: tuple[tuple[str, float], ...] = ()
    """Of a rubric's, the name and score of each."""


@dataclass(frozen=True)
class Unscored:
    """An attempt that a scorer has no verdict on, and why."""

    reason: str


@dataclass
class Usage(chat.Usage):
    """Cost of judging."""

    cached: int = 0
    """Opinions that were known already."""

    def add(self, other: Usage) -> None:
        """Adds `other` to this one."""
        self.calls += other.calls
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens
        self.cost += other.cost
        self.cached += other.cached


@dataclass(frozen=True)
class GroupScores:
    """What a scorer that looks at the whole group makes of it."""

    verdicts: list[Score | Unscored]
    """One an attempt, in order."""
    judgement: trajectory_pb2.Judgement


class GroupSkippedError(Exception):
    """The group as a whole cannot be scored; `reason` is one of `podium.core.skip_reasons`."""

    def __init__(
        self,
        reason: str,
        explanation: str,
        judgement: trajectory_pb2.Judgement | None = None,
    ) -> None:
        super().__init__(explanation)
        self.reason = reason
        self.judgement = judgement
