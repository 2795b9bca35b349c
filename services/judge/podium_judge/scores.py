"""What a scorer says about an attempt, and about a group."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SkipReason(StrEnum):
    """Why a group has no rewards: `Group.skip_reason`."""

    ALL_FAILED = "all_failed"
    """Every attempt raised."""

    NO_REWARD = "no_reward"
    """No attempt carries what the scorers need; the explanations say what."""

    ZERO_VARIANCE = "zero_variance"
    """All attempts are word for word the same, so a judge could not tell them apart."""

    JUDGE_FAILED = "judge_failed"
    """The judge model's answers could not be used, even after it was told why."""


@dataclass(frozen=True)
class Score:
    """One scorer's verdict on one attempt. `value` is finite."""

    value: float
    explanation: str = ""


@dataclass(frozen=True)
class Unscored:
    """An attempt that a scorer has no verdict on, and why."""

    reason: str


@dataclass
class Usage:
    """Cost of judging: calls of the model, tokens that it read and wrote."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class GroupSkippedError(Exception):
    """The group as a whole cannot be scored."""

    def __init__(self, reason: SkipReason, explanation: str) -> None:
        super().__init__(explanation)
        self.reason = reason
