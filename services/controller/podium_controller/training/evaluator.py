"""Measures a version on the held-out split: sampled, and greedily when asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

from podium.core.contract.players import with_players
from podium.core.skip_reasons import ENVIRONMENT_UNAVAILABLE, NO_ENVIRONMENT_ANSWERS
from podium.core.statistics import (
    clustered_mean_interval,
    clustered_proportion_interval,
    clustered_share_interval,
)
from podium.core.tasks import run_all
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2

from podium_controller.domain import metrics as shown
from podium_controller.domain.best_metric import GREEDY_PREFIX
from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.identifiers import GREEDY, SAMPLED, evaluation_group
from podium_controller.domain.ports import COLLECTED, JUDGED, GroupKey, Ledger, StoredGroup
from podium_controller.domain.step_metrics import (
    SUCCESS,
    WIN_RATE,
    evaluation_metrics,
    finite,
    main_side,
    rewards_of,
    telling_success,
)
from podium_controller.domain.timestamps import now_ns, timestamp
from podium_controller.training.aliases import Aliases
from podium_controller.training.episode_source import EpisodeSource
from podium_controller.training.evaluation_scoring import EvaluationScoring
from podium_controller.training.judging import failure_text
from podium_controller.training.reporter import EVALUATE, Reporter


def is_due(spec: spec_pb2.JobSpec, version: int) -> bool:
    """Whether a version is to be evaluated: the first, the last, and every so many."""
    if not spec.HasField("evaluation"):
        return False
    every = spec.evaluation.every_steps
    return version in (spec.fork.version, spec.training.steps) or (
        every > 0 and version % every == 0
    )


def evaluation_episode(spec: spec_pb2.JobSpec) -> spec_pb2.EpisodeSpec:
    """The training episodes, with the evaluation's own players."""
    return with_players(spec.rollout.episode, spec.evaluation)


class Evaluator:
    """Evaluates one job's versions, each in each mode once."""

    def __init__(
        self,
        job_id: str,
        spec: spec_pb2.JobSpec,
        ledger: Ledger,
        aliases: Aliases,
        reporter: Reporter,
        tasks: Sequence[tuple[EpisodeSource, trajectory_pb2.Scenario]],
        scoring: EvaluationScoring | None = None,
    ) -> None:
        """Makes it.

        Args:
            tasks: the scenarios to evaluate on, each with where its episodes come from.
            scoring: None for the environment's own rewards.
        """
        self._job_id = job_id
        self._spec = spec
        self._ledger = ledger
        self._aliases = aliases
        self._reporter = reporter
        self._tasks = tasks
        self._scoring = scoring
        self._first = spec.fork.version

    async def evaluate(self, version: int) -> None:
        """Evaluates the version, which must be served, in the modes that are still due."""
        done = await self._ledger.evaluated_modes(self._job_id, version)
        modes = [SAMPLED, GREEDY] if self._spec.evaluation.greedy else [SAMPLED]
        for mode in modes:
            if mode not in done:
                async with self._reporter.timed(EVALUATE, step=version):
                    await self._evaluate(version, mode)

    async def _evaluate(self, version: int, mode: str) -> None:
        stored = await self._ledger.stored_groups(self._job_id, version, mode)
        attempts = 1 if mode == GREEDY else self._spec.evaluation.samples
        slots = asyncio.Semaphore(_groups_at_once(self._spec.rollout, attempts))
        groups = await run_all(
            [
                self._group(version, mode, i, attempts, stored.get(i), slots)
                for i in range(len(self._tasks))
            ]
        )
        if all(map(_is_missing, groups)):
            raise JobFailedError(
                f"version {version} could not be evaluated: {failure_text(groups[0])}",
                reason=NO_ENVIRONMENT_ANSWERS,
            )
        if self._scoring is not None:
            groups = await self._scored(self._scoring, version, mode, groups, stored)
        scored = self._scoring is not None and self._scoring.scores
        measured = [group for group in groups if not _is_missing(group)]
        evaluation = _measure(measured, version, mode, scored=scored)
        await self._publish(evaluation, missing=len(groups) - len(measured))
        await self._ledger.commit_evaluation(self._job_id, evaluation)
        shown.evaluated(self._job_id, mode, finite(evaluation.metrics))

    async def _group(
        self,
        version: int,
        mode: str,
        index: int,
        attempts: int,
        stored: StoredGroup | None,
        slots: asyncio.Semaphore,
    ) -> trajectory_pb2.Group:
        if stored is not None:
            return stored.group
        sampling = policy_pb2.SamplingParams()
        sampling.CopyFrom(self._spec.rollout.sampling)
        if mode == GREEDY:
            sampling.temperature = 0.0
        key = GroupKey(self._job_id, version, index, mode)
        source, scenario = self._tasks[index]
        async with slots:
            group = await source.collect(
                key,
                evaluation_group(self._job_id, version, mode, index),
                scenario,
                attempts,
                policy_pb2.PolicyRef(job=self._job_id, version=version),
                sampling,
            )
        await self._ledger.save_group(key, COLLECTED, group)
        return group

    async def _scored(
        self,
        scoring: EvaluationScoring,
        version: int,
        mode: str,
        groups: Sequence[trajectory_pb2.Group],
        stored: Mapping[int, StoredGroup],
    ) -> list[trajectory_pb2.Group]:
        """The groups with their scores; what was scored before a restart is not asked again."""
        first: Mapping[int, StoredGroup] = {}
        compares = scoring.compares and version != self._first
        if compares:
            stored_first = await self._ledger.stored_groups(self._job_id, self._first, mode)
            first = {i: each for i, each in stored_first.items() if not _is_missing(each.group)}
        slots = asyncio.Semaphore(max(1, self._spec.rollout.max_concurrent_groups))

        async def one(index: int, group: trajectory_pb2.Group) -> trajectory_pb2.Group:
            if index in stored and stored[index].status == JUDGED:
                return group
            reference = first[index].group if index in first else None
            async with slots:
                return await scoring.score(
                    GroupKey(self._job_id, version, index, mode), group, reference
                )

        found = await run_all([one(index, group) for index, group in enumerate(groups)])
        await self._tell_unjudged(version, found, len(groups) - len(first) if compares else 0)
        if scoring.compares and version == self._first:
            _even(found)
        return found

    async def _tell_unjudged(
        self, version: int, groups: Sequence[trajectory_pb2.Group], without: int
    ) -> None:
        reasons = Counter(group.skip_reason for group in groups if group.skip_reason)
        told = [f"{count} of {len(groups)} ({reason})" for reason, count in reasons.items()]
        if without:
            told.append(f"{without} of {len(groups)} (no attempts of version {self._first})")
        if told:
            text = ", ".join(told)
            await self._reporter.warn(
                f"of the evaluation of version {version} scenarios have no score: {text}", version
            )

    async def _publish(self, evaluation: pb.Evaluation, missing: int) -> None:
        """`missing` scenarios had no environment; without them it compares with no other."""
        numbers = finite(evaluation.metrics)
        if evaluation.mode == GREEDY:
            numbers = {f"{GREEDY_PREFIX}{name}": value for name, value in numbers.items()}
        await self._aliases.record(evaluation.version, numbers)
        metric = self._spec.evaluation.best_metric
        if metric.startswith(GREEDY_PREFIX) != (evaluation.mode == GREEDY):
            return
        if missing:
            await self._reporter.warn(
                f"{missing} scenarios of the evaluation of version {evaluation.version} had no"
                " environment and count nowhere, so it cannot become the best",
                evaluation.version,
            )
        elif metric in numbers:
            await self._aliases.promote(evaluation.version, numbers[metric])
        else:
            await self._reporter.warn(
                f"the evaluation of version {evaluation.version} has no metric {metric!r}, so it"
                f" cannot become the best; it has {', '.join(sorted(numbers)) or 'none'}",
                evaluation.version,
            )


def _is_missing(group: trajectory_pb2.Group) -> bool:
    """Whether nothing can be said of a scenario, for its environment was away."""
    return group.skip_reason == ENVIRONMENT_UNAVAILABLE


def _groups_at_once(rollout: spec_pb2.RolloutSpec, attempts: int) -> int:
    """As many episodes at once as in training: what the pool takes is the same."""
    return max(1, rollout.max_concurrent_groups * rollout.group_size // attempts)


def _even(groups: Sequence[trajectory_pb2.Group]) -> None:
    """Against itself a policy wins half."""
    for group in groups:
        for trajectory in main_side(group.trajectories):
            trajectory.metrics[WIN_RATE] = 0.5


def _measure(
    groups: Sequence[trajectory_pb2.Group], version: int, mode: str, *, scored: bool = False
) -> pb.Evaluation:
    # A group has the attempts at one scenario, and those resemble each other.
    main_sides = [main_side(group.trajectories) for group in groups]
    trajectories = list(chain.from_iterable(main_sides))
    metrics = evaluation_metrics(trajectories, scored=scored)
    compared = [
        [each.metrics[WIN_RATE] for each in group if WIN_RATE in each.metrics]
        for group in main_sides
    ]
    if any(compared):
        low, high = clustered_share_interval(compared)
        metrics |= {f"{WIN_RATE}_low": low, f"{WIN_RATE}_high": high}
    evaluation = pb.Evaluation(
        version=version,
        mode=mode,
        episodes=len(trajectories),
        metrics=metrics,
        time=timestamp(now_ns()),
    )
    rewarded = [
        [each for each in group if rewards_of([each], scored=scored)] for group in main_sides
    ]
    rewards = [rewards_of(group, scored=scored) for group in rewarded]
    successes = [_successes(group) for group in rewarded] if SUCCESS in metrics else None
    if bounds := clustered_mean_interval(rewards, successes):
        evaluation.reward_low, evaluation.reward_high = bounds
    if SUCCESS in metrics:
        told = telling_success(trajectories)
        shares = [
            _successes(group) for group in main_sides if group and group[0].environment in told
        ]
        low, high = clustered_proportion_interval(shares)
        evaluation.success_low, evaluation.success_high = low, high
    return evaluation


def _successes(trajectories: Sequence[trajectory_pb2.Trajectory]) -> list[float]:
    """Fractional ones are allowed; outside [0, 1] they are no proportion."""
    return [min(1.0, max(0.0, each.metrics.get(SUCCESS, 0.0))) for each in trajectories]
