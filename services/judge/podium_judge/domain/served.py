"""A scorer that is served elsewhere: a reward model, or a user's own code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from podium.chat import RequestRefusedError
from podium.core import skip_reasons
from podium.core.errors import FailedPreconditionError
from podium.core.spending import NOTHING, Amount
from podium.types.v1 import trajectory_pb2

from podium_judge.domain.budget import Allowance
from podium_judge.domain.judge import absence
from podium_judge.domain.scores import GroupScores, GroupSkippedError, Score, Unscored, Usage
from podium_judge.domain.transcript import SHORTEST
from podium_judge.domain.verdict import VerdictError


class ScoreSource(Protocol):
    """Who gives the scores."""

    @property
    def name(self) -> str:
        """For whoever reads what it said."""
        ...

    @property
    def address(self) -> str:
        """Where it is asked."""
        ...

    @property
    def is_priced(self) -> bool:
        """Whether it is known what its calls cost."""
        ...

    def most(self, trajectories: Sequence[trajectory_pb2.Trajectory]) -> Amount:
        """The most that scores for these can take."""
        ...

    async def scores(
        self,
        group: trajectory_pb2.Group,
        trajectories: Sequence[trajectory_pb2.Trajectory],
        usage: Usage,
    ) -> list[Score | Unscored]:
        """One an attempt, finite; adds the cost to `usage`.

        Raises:
            VerdictError: its answer cannot be used.
            RequestRefusedError: it will not score this group.
            UnavailableError: it cannot be reached, or not now, after the retries.
            FailedPreconditionError: wrong key, address or model name.
        """
        ...


class ServedScorer:
    """Asks one source about a group, within the job's budget."""

    kind = "http"

    def __init__(self, source: ScoreSource, allowance: Allowance) -> None:
        self._source = source
        self._allowance = allowance

    def least(self) -> Amount:
        """See `GroupScorer.least`."""
        return self._source.most([SHORTEST])

    async def score(
        self,
        group: trajectory_pb2.Group,
        trajectories: Sequence[trajectory_pb2.Trajectory],
        usage: Usage,
        *,
        alone: bool,
    ) -> GroupScores:
        """See `GroupScorer.score`.

        Raises:
            GroupSkippedError: too little budget is left, or an answer is of no use.
            UnavailableError, FailedPreconditionError: see `ScoreSource.scores`.
        """
        spent = Usage()
        try:
            verdicts = await self._scores(group, trajectories, spent)
        except FailedPreconditionError as error:
            raise absence(error) from error
        except (VerdictError, RequestRefusedError) as error:
            judgement = self._judgement([], [], spent)
            judgement.opinions[0].failure = str(error)
            raise GroupSkippedError(
                skip_reasons.JUDGE_FAILED, f"http: {error}", judgement
            ) from error
        finally:
            usage.add(spent)
        return GroupScores(verdicts, self._judgement(trajectories, verdicts, spent))

    async def _scores(
        self,
        group: trajectory_pb2.Group,
        trajectories: Sequence[trajectory_pb2.Trajectory],
        usage: Usage,
    ) -> list[Score | Unscored]:
        most = self._source.most(trajectories) if self._allowance.reserves else NOTHING
        async with self._allowance.group(most), self._allowance.question(most, usage) as spent:
            return await self._source.scores(group, trajectories, spent)

    def _judgement(
        self,
        trajectories: Sequence[trajectory_pb2.Trajectory],
        verdicts: Sequence[Score | Unscored],
        spent: Usage,
    ) -> trajectory_pb2.Judgement:
        told = trajectory_pb2.JudgeOpinion(
            model=self._source.name,
            address=self._source.address,
            calls=spent.calls,
            prompt_tokens=spent.prompt_tokens,
        )
        if self._source.is_priced:
            told.cost = spent.cost
        for trajectory, verdict in zip(trajectories, verdicts, strict=True):
            if isinstance(verdict, Score):
                told.attempts.add(trajectory_id=trajectory.id, score=verdict.value)
        return trajectory_pb2.Judgement(opinions=[told])
