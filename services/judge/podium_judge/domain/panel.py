"""Several judges: who is asked, whose opinion counts, and what it comes to."""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from podium.core import skip_reasons
from podium.core.errors import FailedPreconditionError, UnavailableError
from podium.core.spending import Amount

from podium_judge.domain import metrics
from podium_judge.domain.agreement import kendall_w
from podium_judge.domain.judge import Judge
from podium_judge.domain.opinion import FailureKind, Opinion
from podium_judge.domain.position import PositionBias, fifth
from podium_judge.domain.question import JudgeQuestion
from podium_judge.domain.scores import Score

_FOR_GOOD = (FailureKind.USELESS, FailureKind.REFUSED, FailureKind.OVER_BUDGET)

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
class _Voice:
    """What one seat says: an opinion, or one for each order."""

    opinions: tuple[Opinion, ...]

    @property
    def counts(self) -> bool:
        """Whether there is no order that it failed in."""
        return not any(opinion.failure for opinion in self.opinions)

    @property
    def scores(self) -> list[float]:
        """The means over the orders."""
        rows = [[score.value for score in opinion.scores] for opinion in self.opinions]
        return [mean(column) for column in zip(*rows, strict=True)]

    @property
    def difference(self) -> float:
        """How far the scores of the same differ between two orders, on average."""
        first, second = (opinion.scores for opinion in self.opinions)
        return mean([abs(a.value - b.value) for a, b in zip(first, second, strict=True)])


@dataclass(frozen=True)
class PanelVerdict:
    """What a panel says about a question."""

    opinions: tuple[Opinion, ...]
    """Of all judges that were asked, in their order; of one asked twice, both."""
    scores: tuple[Score, ...] = ()
    """One an attempt, or criterion; none when too few opinions count."""
    agreement: float | None = None
    """Kendall's W of the opinions that count."""

    @property
    def failures(self) -> str:
        """Why the others do not count."""
        texts = [each.failure.text for each in self.opinions if each.failure]
        return "; ".join(dict.fromkeys(texts))

    @property
    def skip_reason(self) -> str:
        """Why the group has no scores, as one of `podium.core.skip_reasons`."""
        failures = [each.failure for each in self.opinions if each.failure]
        if any(each.kind == FailureKind.OVER_BUDGET for each in failures):
            return skip_reasons.JUDGE_BUDGET
        return skip_reasons.JUDGE_FAILED

    def raise_if_unreachable(self) -> None:
        """Fails as the call does when not one judge that failed has answered.

        One that may not be asked will not be later.

        Raises:
            UnavailableError: one of them cannot be reached, or not now.
            FailedPreconditionError: all of them have a wrong key or address.
        """
        failures = [each.failure for each in self.opinions if each.failure]
        if any(each.kind in _FOR_GOOD for each in failures):
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

    async def verdict(self, group_id: str, *questions: JudgeQuestion) -> PanelVerdict:
        """Asks all seats at once, then fallbacks one by one while too few opinions count.

        Every judge sees the attempts in an order of its own, fixed by the group.

        Args:
            questions: one, or the same in both orders.
        """
        asked = [
            self._ask("panel", seat, questions, _seed(group_id, number))
            for number, seat in enumerate(self._seats)
        ]
        voices = list(await asyncio.gather(*asked))
        for number, seat in enumerate(self._fallbacks, start=len(self._seats)):
            if self._count(voices) >= self._quorum:
                break
            seed = _seed(group_id, number)
            voices.append(await self._ask("fallback", seat, questions, seed))
        if self._count(voices) < self._quorum:
            return PanelVerdict(_flat(voices))
        return self._combined(voices)

    def most(self, group_id: str, *questions: JudgeQuestion) -> Amount:
        """The most that the first answers of all seats can take; see `verdict`."""
        return Amount.sum(
            seat.judge.most(question, _seed(group_id, number))
            for number, seat in enumerate(self._seats)
            for question in questions
        )

    @staticmethod
    def _count(voices: Sequence[_Voice]) -> int:
        return sum(voice.counts for voice in voices)

    async def _ask(
        self, kind: str, seat: Seat, questions: Sequence[JudgeQuestion], seed: str
    ) -> _Voice:
        asked = [seat.judge.opinion(question, seed) for question in questions]
        voice = _Voice(tuple(await asyncio.gather(*asked)))
        for opinion in voice.opinions:
            outcome = opinion.failure.kind.value if opinion.failure else "scored"
            metrics.OPINIONS.labels(seat=kind, outcome=outcome).inc()
        # The statistic is of independent orders, which the reverse is not.
        first = voice.opinions[0]
        if not first.failure and not first.cached:
            self._observe_places(seat.label, first)
        if len(questions) == 2 and voice.counts:
            metrics.ORDER_DIFFERENCE.labels(model=seat.label).observe(voice.difference)
        return voice

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

    def _combined(self, voices: Sequence[_Voice]) -> PanelVerdict:
        counting = [voice for voice in voices if voice.counts]
        rows = [voice.scores for voice in counting]
        # Of attempts that are compared; criteria have no rank.
        agreement = kendall_w(rows) if counting[0].opinions[0].places else None
        if agreement is not None:
            metrics.AGREEMENT.observe(agreement)
        scores = tuple(
            Score(self._combine(column), _explanation(_flat(counting), attempt))
            for attempt, column in enumerate(zip(*rows, strict=True))
        )
        return PanelVerdict(_flat(voices), scores, agreement)


def _flat(voices: Sequence[_Voice]) -> tuple[Opinion, ...]:
    return tuple(opinion for voice in voices for opinion in voice.opinions)


def _seed(group_id: str, number: int) -> str:
    return f"{group_id}#{number}" if number else group_id


def _explanation(opinions: Sequence[Opinion], attempt: int) -> str:
    texts = [(opinion.model, opinion.scores[attempt].explanation) for opinion in opinions]
    if len(texts) == 1:
        return texts[0][1]
    return "\n".join(f"{model}: {text}" for model, text in texts)
