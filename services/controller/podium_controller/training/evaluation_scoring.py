"""Scores an evaluation's attempts: alone, and by a judge against the first version's."""

from __future__ import annotations

from collections.abc import Callable

from podium.core.win_rates import alone_and_together, contest, shown_first, wins
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_controller.domain.evaluation_reward import evaluation_reward
from podium_controller.domain.ports import GroupKey, Ledger
from podium_controller.domain.step_metrics import FIRST_SHOWN, WIN_RATE, main_side
from podium_controller.domain.timestamps import month
from podium_controller.training.judging import Judging


class EvaluationScoring:
    """Scores one job's evaluations, each group once, and keeps what that costs."""

    def __init__(
        self,
        reward: spec_pb2.RewardSpec,
        judging: Callable[[spec_pb2.RewardSpec], Judging],
        ledger: Ledger,
    ) -> None:
        """`judging` asks the judge service about a reward."""
        alone, together = alone_and_together(reward)
        self._alone = judging(alone) if alone is not None else None
        self._together = judging(together) if together is not None else None
        self._ledger = ledger

    @classmethod
    def of(
        cls,
        spec: spec_pb2.JobSpec,
        judging: Callable[[spec_pb2.RewardSpec], Judging],
        ledger: Ledger,
    ) -> EvaluationScoring | None:
        """As the job says; None for the environment's own rewards."""
        reward = evaluation_reward(spec)
        return cls(reward, judging, ledger) if reward.scorers else None

    @property
    def scores(self) -> bool:
        """Whether attempts get a reward."""
        return self._alone is not None

    @property
    def compares(self) -> bool:
        """Whether attempts are judged against the first version's."""
        return self._together is not None

    async def score(
        self,
        key: GroupKey,
        group: trajectory_pb2.Group,
        reference: trajectory_pb2.Group | None,
    ) -> trajectory_pb2.Group:
        """The group with its rewards, and of each attempt `win_rate`; stored.

        Args:
            reference: the first version's group of the same scenario; None for no comparison.

        Raises:
            JobFailedError: see `Judging.score`.
        """
        scored, usage = group, judge_pb.JudgeUsage()
        if self._alone is not None:
            answer = await self._alone.ask(key, group)
            scored = answer.group
            _add(usage, answer.usage)
        if self._together is not None and reference is not None:
            await self._compare(self._together, key, scored, reference, usage)
        await self._ledger.save_judged(key, scored, usage, month())
        return scored

    async def _compare(
        self,
        together: Judging,
        key: GroupKey,
        group: trajectory_pb2.Group,
        reference: trajectory_pb2.Group,
        usage: judge_pb.JudgeUsage,
    ) -> None:
        own, other = main_side(group.trajectories), main_side(reference.trajectories)
        asked, judged = contest(group.id, own, other), None
        if asked is not None:
            asked.job_id, asked.step = group.job_id, group.step
            asked.scenario.CopyFrom(group.scenario)
            answer = await together.ask(key, asked)
            judged = answer.group
            _add(usage, answer.usage)
            group.judgements.extend(judged.judgements)
        outcomes = wins(own, other, judged)
        if outcomes is None:
            group.skip_reason = judged.skip_reason if judged is not None else ""
            return
        places = shown_first(judged, own) if judged is not None else []
        for trajectory in own:
            if trajectory.id in outcomes:
                trajectory.metrics[WIN_RATE] = outcomes[trajectory.id]
            if places:
                trajectory.metrics[FIRST_SHOWN] = sum(places) / len(places)


def _add(total: judge_pb.JudgeUsage, more: judge_pb.JudgeUsage) -> None:
    total.calls += more.calls
    total.prompt_tokens += more.prompt_tokens
    total.completion_tokens += more.completion_tokens
    total.cost += more.cost
    total.cached += more.cached
