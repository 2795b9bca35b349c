"""What one judge says about a question."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from podium.chat import Asked
from podium.core.errors import PodiumError

from podium_judge.domain.scores import Score, Usage


class FailureKind(StrEnum):
    """Why a judge gave no scores."""

    USELESS = "useless"
    """Its answers could not be used, even after it was told why."""

    REFUSED = "refused"
    """Its API will not answer this question."""

    UNAVAILABLE = "unavailable"
    """It could not be reached, or not in time, after its retries."""

    OVER_BUDGET = "over_budget"
    """It was not asked, or not again: its answer might have cost more than is left."""

    MISCONFIGURED = "misconfigured"
    """Its API refuses the key, the address or the model's name."""


@dataclass(frozen=True)
class Failure:
    """Why a judge gave no scores."""

    kind: FailureKind
    text: str
    error: PodiumError | None = None
    """What the call may fail with, when it is not the answer that is at fault."""


@dataclass(frozen=True)
class Record:
    """How a judge was asked: what it takes to ask it again."""

    address: str = ""
    order_seed: str = ""
    prompt_digest: str = ""
    """See `JudgePrompt.digest`."""
    finish_reason: str = ""
    """Of the last answer; empty without one."""
    asked: Asked | None = None
    """With which parameters the last answer was asked for; None without one."""


@dataclass(frozen=True)
class Opinion:
    """One judge's scores for the attempts of a question, or why there are none."""

    model: str
    scores: tuple[Score, ...] = ()
    """One an attempt, or criterion, in the question's order."""
    places: tuple[int, ...] = ()
    """Where each attempt stood in the prompt, from 1; none where nothing is compared."""
    failure: Failure | None = None
    usage: Usage = field(default_factory=Usage)
    has_price: bool = False
    cached: bool = False
    bytes_left_out: int = 0
    record: Record = field(default_factory=Record)
