"""Several judges: who is asked, whose opinion counts, and what it comes to."""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from podium.core.errors import FailedPreconditionError, UnavailableError

from podium_judge.domain import metrics
from podium_judge.domain.agreement import kendall_w
from podium_judge.domain.judge import Judge
from podium_judge.domain.opinion import FailureKind, Opinion
from podium_judge.domain.position import PositionBias, fifth
from podium_judge.domain.prompt import Question
from podium_judge.domain.scores import Score

Combine = Callable[[Sequence[float]], float]


def mean(scores: Sequence[float]) -> float:
    """Their mean."""
    return math.fsum(scores) / len(scores)


def median(scores: Sequence[float]) -> float:
    """Their median; of an even number, the mean of the middle two."""
    return statistics.median(scores)


@dataclass(frozen=True)
class Seat:
    """A judge of a panel."""

    judge: Judge
    label: str = "other"
    """Its name in metrics, one of few."""


@dataclass(frozen=True)
class PanelVerdict:
    """What a panel says about a question."""

    opinions: tuple[Opinion, ...]
    """Of all judges that were asked, in their order."""
    scores: tuple[Score, ...] = ()
    """One an attempt; none when too few opinions count."""
    agreement: float | None = None
    """Kendall's W of the opinions that count."""

    @property
    def failures(self) -> str:
        """Why the others do not count."""
        texts = [each.failure.text for each in self.opinions if each.failure]
        return "; ".join(dict.fromkeys(texts))

    def raise_if_unreachable(self) -> None:
        """Fails as the call does when not one judge that failed has answered.

        Raises:
            UnavailableError: one of them cannot be reached, or not now.
            FailedPreconditionError: all of them have a wrong key or address.
        """
        failures = [each.failure for each in self.opinions if each.failure]
        if any(each.kind in (FailureKind.USELESS, FailureKind.REFUSED) for each in failures):
            return
        errors = [each.error for each in failures if each.error]
        for kind in (UnavailableError, FailedPreconditionError):
            for error in errors:
                if isinstance(error, kind):
                    raise error


class Panel:
    """One judge or more that score together, and others that stand in for them."""

    def __init__(
        self,
        seats: Sequence[Seat],
        fallbacks: Sequence[Seat] = (),
        quorum: int = 0,
        combine: Combine = mean,
        biases: dict[str, PositionBias] | None = None,
    ) -> None:
        """`quorum` opinions must count; 0 for more than half of the seats'.

        `biases` is by label, and learns from every new opinion.
        """
        self._seats = seats
        self._fallbacks = fallbacks
        self._quorum = quorum or len(seats) // 2 + 1
        self._combine = combine
        self._biases = {} if biases is None else biases

    async def verdict(self, question: Question, group_id: str) -> PanelVerdict:
        """Asks all seats at once, then fallbacks one by one while too few opinions count.

        Every judge sees the attempts in an order of its own, fixed by the group.
        """
        asked = [
            self._ask("panel", seat, question, _seed(group_id, number))
            for number, seat in enumerate(self._seats)
        ]
        opinions = list(await asyncio.gather(*asked))
        for number, seat in enumerate(self._fallbacks, start=len(self._seats)):
            if self._count(opinions) >= self._quorum:
                break
            seed = _seed(group_id, number)
            opinions.append(await self._ask("fallback", seat, question, seed))
        if self._count(opinions) < self._quorum:
            return PanelVerdict(tuple(opinions))
        return self._combined(opinions)

    @staticmethod
    def _count(opinions: Sequence[Opinion]) -> int:
        return sum(not opinion.failure for opinion in opinions)

    async def _ask(self, kind: str, seat: Seat, question: Question, seed: str) -> Opinion:
        opinion = await seat.judge.opinion(question, seed)
        outcome = opinion.failure.kind.value if opinion.failure else "scored"
        metrics.OPINIONS.labels(seat=kind, outcome=outcome).inc()
        if not opinion.failure and not opinion.cached:
            self._observe_places(seat.label, opinion)
        return opinion

    def _observe_places(self, label: str, opinion: Opinion) -> None:
        count = len(opinion.places)
        if count < 2:
            return
        scores = [score.value for score in opinion.scores]
        for place, score in zip(opinion.places, scores, strict=True):
            part = str(fifth(place, count))
            metrics.POSITION_SCORE.labels(model=label, fifth=part).observe(score)
        bias = self._biases.setdefault(label, PositionBias())
        bias.add(opinion.places, scores)
        metrics.POSITION_SLOPE.labels(model=label).set(bias.slope)
        metrics.POSITION_Z.labels(model=label).set(bias.z)

    def _combined(self, opinions: Sequence[Opinion]) -> PanelVerdict:
        counting = [opinion for opinion in opinions if not opinion.failure]
        rows = [[score.value for score in opinion.scores] for opinion in counting]
        agreement = kendall_w(rows)
        if agreement is not None:
            metrics.AGREEMENT.observe(agreement)
        scores = tuple(
            Score(self._combine(column), _explanation(counting, attempt))
            for attempt, column in enumerate(zip(*rows, strict=True))
        )
        return PanelVerdict(tuple(opinions), scores, agreement)


def _seed(group_id: str, number: int) -> str:
    return f"{group_id}#{number}" if number else group_id


def _explanation(opinions: Sequence[Opinion], attempt: int) -> str:
    texts = [(opinion.model, opinion.scores[attempt].explanation) for opinion in opinions]
    if len(texts) == 1:
        return texts[0][1]
    return "\n".join(f"{model}: {text}" for model, text in texts)
