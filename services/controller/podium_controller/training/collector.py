"""Collects and scores the groups of a step; nothing that is stored is collected again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from opentelemetry import trace
from podium.core.contract.rollout import attempts_allowed
from podium.core.errors import InternalError
from podium.core.sft import takes_any_tokens
from podium.core.skip_reasons import ALL_FAILED
from podium.core.tasks import run_all
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_controller.domain import metrics
from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.identifiers import training_group
from podium_controller.domain.ports import (
    COLLECTED,
    CONSUMED,
    JUDGED,
    GroupKey,
    Ledger,
    StoredGroup,
)
from podium_controller.domain.staleness import staleness
from podium_controller.domain.step_metrics import first_start_ns
from podium_controller.domain.timestamps import now_ns
from podium_controller.domain.trainable_groups import (
    are_all_alike,
    can_teach,
    is_worth_replacing,
    stand_ins,
)
from podium_controller.domain.uncollected import UNCOLLECTED
from podium_controller.training import step_span
from podium_controller.training.group_sources import GroupSource
from podium_controller.training.judging import Scoring, tell_unjudged, unusable
from podium_controller.training.reporter import COLLECT, JUDGE, Reporter
from podium_controller.training.shortfall import Shortfall
from podium_controller.training.useless import Keyed, UselessGroups

# How often a group is collected again because what sampled it was too old.
_STALE_ROUNDS = 3


@dataclass
class StepBatch:
    """The scored groups of a step, and how they came about."""

    step: int
    groups: list[trajectory_pb2.Group]
    start_ns: int
    span: trace.Span
    seconds: dict[str, float] = field(default_factory=dict)
    staleness: int = 0
    stale: int = 0
    """Groups that were too stale to train, and were collected again."""
    replaced: int | None = None
    """Groups without a learning signal that others replaced; None where the job replaces none."""
    carried: int | None = None
    """Groups that were begun for an earlier step; None unless steps take what is ready first."""
    redrawn: Counter[int] = field(default_factory=Counter)
    """By place in the step: how often what was drawn for it could not be collected."""
    limit: int | None = None
    """The limit of concurrent groups at the time; None where it is fixed."""

    @property
    def counts(self) -> dict[str, float]:
        """Counts of groups, as metrics of the step."""
        found = {
            "stale": self.stale,
            "replaced": self.replaced,
            "carried": self.carried,
            "limit": self.limit,
        }
        return {f"groups_{name}": float(n) for name, n in found.items() if n is not None}


class Collector:
    """Makes the batches of one job."""

    def __init__(
        self,
        job_id: str,
        spec: spec_pb2.JobSpec,
        group_source: GroupSource,
        scoring: Scoring,
        ledger: Ledger,
        reporter: Reporter,
        begin_span: Callable[[int], trace.Span],
    ) -> None:
        """`begin_span` makes the root span of a step; whoever takes the batch ends it."""
        self._job_id = job_id
        self._spec = spec
        self._group_source = group_source
        self._scoring = scoring
        self._ledger = ledger
        self._reporter = reporter
        self._begin_span = begin_span
        self._useless = UselessGroups(job_id, ledger, reporter)
        self._shortfall = Shortfall(spec.rollout, reporter)
        replaces = group_source.renewable and spec.rollout.dynamic_sampling
        self._attempts = attempts_allowed(spec.rollout) if replaces else 0
        self._slots = asyncio.Semaphore(spec.rollout.max_concurrent_groups)
        self.foreground_step = 0
        """The step whose phases are the job's; others are collected in the background."""

    async def collect(self, step: int) -> StepBatch:
        """All groups of a step: scored, within the staleness bound, with something to learn.

        Raises:
            BudgetSpentError: judges have cost what they may, and no group has a score.
            JobFailedError: groups stay too old (STALENESS_EXCEEDED), or all of
                them fail again and again (ENVIRONMENT_FAILING, ROLLOUT_FAILING,
                GROUPS_REFUSED, JUDGE_FAILING, TEACHER_FAILING), or not one could be scored because
                the judges may spend no more (JUDGE_BUDGET_SPENT), or judges or teacher gave
                no answer (JUDGE_UNAVAILABLE, TEACHER_UNAVAILABLE), or no environment
                did (ENVIRONMENT_UNAVAILABLE).
        """
        count = await self._group_source.count(step)
        span = self._begin_span(step)
        try:
            with step_span.current(span):
                batch = await self._collect(step, count, span)
        except BaseException:
            span.end()
            raise
        return batch

    async def _collect(self, step: int, count: int, span: trace.Span) -> StepBatch:
        batch = StepBatch(step, [], now_ns(), span)
        renewable = self._group_source.renewable
        rounds = 0
        while True:
            await self._attempt(batch, count)
            groups = self._keyed(batch)
            await self._useless.check_judges(step, groups)
            reasons = {unusable(group) for group in batch.groups}
            if "" in reasons or (reasons == {ALL_FAILED} and not renewable):
                break
            is_lost = self._group_source.is_lost(step)
            if self._useless.check_environments(step, groups, is_lost=is_lost):
                await self._useless.drop(groups)
            else:
                rounds += 1
                await self._useless.make_room(step, groups, rounds, renewable=renewable)
            batch.redrawn.update(
                key.position for key, group in groups if unusable(group) in UNCOLLECTED
            )
        if self._attempts:
            batch.replaced = len(batch.groups) - count
            await self._shortfall.look(step, list(map(self._teaches, batch.groups)))
        batch.staleness = max(self._age(group, step) for group in batch.groups)
        # Groups that were stored before a restart began before it.
        batch.start_ns = min(batch.start_ns, first_start_ns(batch.groups) or batch.start_ns)
        return batch

    def _age(self, group: trajectory_pb2.Group, step: int) -> int:
        if takes_any_tokens(self._spec, group):
            return 0
        return staleness(group, self._job_id, step)

    async def _attempt(self, batch: StepBatch, count: int) -> None:
        """Collects the step's groups, and others in place of those that cannot teach.

        Which these are follows from what is stored: a job that goes on after a crash asks for
        the same ones.
        """
        stored = await self._ledger.stored_groups(self._job_id, batch.step)
        origins, begin = list(range(count)), 0
        batch.groups = []
        while begin < len(origins):
            batch.groups += await self._round(batch, origins[begin:], stored)
            begin, more = len(origins), self._stand_ins(batch.groups, origins, begin)
            origins += more

    def _stand_ins(
        self, groups: Sequence[trajectory_pb2.Group], origins: Sequence[int], begin: int
    ) -> list[int]:
        if self._attempts <= len(groups) or all(map(unusable, groups)):
            return []
        if any(map(are_all_alike, groups)):
            return []
        fine = [self._teaches(group) or not is_worth_replacing(group) for group in groups]
        return stand_ins(fine, origins, begin, self._attempts)

    def _teaches(self, group: trajectory_pb2.Group) -> bool:
        return can_teach(group, self._spec.training.loss)

    def _keyed(self, batch: StepBatch) -> list[Keyed]:
        return [
            (GroupKey(self._job_id, batch.step, position), group)
            for position, group in enumerate(batch.groups)
        ]

    async def _round(
        self, batch: StepBatch, origins: Sequence[int], known: Mapping[int, StoredGroup]
    ) -> list[trajectory_pb2.Group]:
        """Collects the step's next groups; `origins` are the groups that they replace."""
        step, first = batch.step, len(batch.groups)
        stored = {i: each for i, each in known.items() if first <= i < first + len(origins)}
        left = len(origins) - len(stored)
        all_collected = asyncio.Event()
        if left == 0:
            all_collected.set()

        def collected() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                all_collected.set()

        async def groups() -> list[trajectory_pb2.Group]:
            return await run_all(
                [
                    self._group(batch, i, origin, stored.get(i), collected)
                    for i, origin in enumerate(origins, first)
                ]
            )

        # Judging begins with the first group; what is timed as judging is its tail.
        work = asyncio.create_task(groups())
        collecting = asyncio.create_task(all_collected.wait())
        try:
            async with self._reporter.timed(
                COLLECT, batch.seconds, foreground=self._is_foreground(step), step=step
            ):
                await asyncio.wait((work, collecting), return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    work.result()
            async with self._reporter.timed(
                JUDGE, batch.seconds, foreground=self._is_foreground(step), step=step
            ):
                return await work
        finally:
            work.cancel()
            collecting.cancel()
            await asyncio.gather(work, collecting, return_exceptions=True)

    async def _group(
        self,
        batch: StepBatch,
        index: int,
        origin: int,
        stored: StoredGroup | None,
        collected: Callable[[], None],
    ) -> trajectory_pb2.Group:
        step = batch.step
        key = GroupKey(self._job_id, step, index)
        if stored is not None and stored.status == CONSUMED:
            raise InternalError(f"group {stored.group.id} has trained step {step} already")
        limit = self._spec.rollout.max_staleness
        for _ in range(_STALE_ROUNDS + 1):
            fresh = stored is None
            if stored is None:
                async with self._slots:
                    group = await self._group_source.sample(key, origin, batch.redrawn[index])
                await self._ledger.save_group(key, COLLECTED, group)
                stored = StoredGroup(index, COLLECTED, group)
            age = self._age(stored.group, step)
            if age <= limit:
                break
            batch.stale += 1
            metrics.count_group(self._job_id, metrics.STALE)
            await self._reporter.warn(
                f"group {stored.group.id} was sampled {age} versions ago, {limit} are allowed;"
                " it is collected again",
                step,
            )
            await self._ledger.drop_group(key)
            stored = None
        if stored is None:
            raise JobFailedError(
                f"group {training_group(self._job_id, step, index)} came from weights that are"
                f" too old {_STALE_ROUNDS + 1} times; max_staleness is {limit}",
                reason="STALENESS_EXCEEDED",
            )
        if fresh:
            collected()
        if stored.status == JUDGED:
            return stored.group
        group = await self._scoring.score(key, stored.group)
        await tell_unjudged(self._reporter, group, step)
        return group

    def _is_foreground(self, step: int) -> bool:
        return step == self.foreground_step
