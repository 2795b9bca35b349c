"""Collects and scores the groups of a step; nothing that is stored is collected again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from opentelemetry import trace
from podium.core.errors import InternalError
from podium.core.sft import takes_any_tokens
from podium.core.skip_reasons import (
    ALL_FAILED,
    JUDGE_BUDGET,
    JUDGE_ERROR,
    JUDGE_FAILED,
    JUDGE_UNAVAILABLE,
    NO_JUDGE_ANSWERS,
)
from podium.core.tasks import run_all
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium.types.v1.spec_pb2 import BudgetSpec

from podium_controller.domain import metrics
from podium_controller.domain.budget import BUDGET_EXHAUSTED, exhausted
from podium_controller.domain.errors import BudgetSpentError, JobFailedError
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
from podium_controller.domain.uncollected import was_not_collected
from podium_controller.domain.usage import of_judges
from podium_controller.training import step_span
from podium_controller.training.group_sources import GroupSource
from podium_controller.training.judging import (
    Scoring,
    failure_text,
    unjudgeable,
    unusable,
)
from podium_controller.training.reporter import COLLECT, JUDGE, Reporter

# How often a group is collected again because what sampled it was too old.
_STALE_ROUNDS = 3
# How often in a row all groups of a step may be of no use.
_USELESS_ROUNDS = 3
# What asking the judge once more may mend.
_UNJUDGED = (JUDGE_FAILED, JUDGE_ERROR)


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
    """Groups that were too old when they were to train, and were collected again."""


class Collector:
    """Makes the batches of one job."""

    def __init__(
        self,
        job_id: str,
        spec: spec_pb2.JobSpec,
        group_source: GroupSource,
        judging: Scoring,
        ledger: Ledger,
        reporter: Reporter,
        begin_span: Callable[[int], trace.Span],
    ) -> None:
        """`begin_span` makes the root span of a step; whoever takes the batch ends it."""
        self._job_id = job_id
        self._spec = spec
        self._group_source = group_source
        self._judging = judging
        self._ledger = ledger
        self._reporter = reporter
        self._begin_span = begin_span
        self._slots = asyncio.Semaphore(spec.rollout.max_concurrent_groups)
        self.foreground_step = 0
        """The step whose phases are the job's; others are collected in the background."""

    async def collect(self, step: int) -> StepBatch:
        """All groups of a step, scored, fresh enough, and of some use.

        Raises:
            BudgetSpentError: judges have cost what they may, and no group has a score.
            JobFailedError: groups stay too old (STALENESS_EXCEEDED), or all of
                them fail again and again (ENVIRONMENT_FAILING, ROLLOUT_FAILING,
                JUDGE_FAILING), or
                not one could be judged because the judges may spend no more
                (JUDGE_BUDGET_SPENT) or gave no answer (JUDGE_UNAVAILABLE).
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
        for rounds in range(1, _USELESS_ROUNDS + 1):
            await self._round(batch, count)
            await self._check_judges_budget(batch)
            _check_judged(self._job_id, batch)
            reasons = {unusable(group) for group in batch.groups}
            if "" in reasons or (reasons == {ALL_FAILED} and not self._group_source.renewable):
                break
            await self._give_up_or_warn(batch, rounds)
        batch.staleness = max(self._age(group, step) for group in batch.groups)
        # Groups that were stored before a restart began before it.
        batch.start_ns = min(batch.start_ns, first_start_ns(batch.groups) or batch.start_ns)
        return batch

    def _age(self, group: trajectory_pb2.Group, step: int) -> int:
        return 0 if takes_any_tokens(self._spec) else staleness(group, self._job_id, step)

    async def _round(self, batch: StepBatch, count: int) -> None:
        step = batch.step
        stored = await self._ledger.stored_groups(self._job_id, step)
        left = count - len(stored)
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
                [self._group(batch, i, stored.get(i), collected) for i in range(count)]
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
                batch.groups = await work
        finally:
            work.cancel()
            collecting.cancel()
            await asyncio.gather(work, collecting, return_exceptions=True)

    async def _group(
        self,
        batch: StepBatch,
        index: int,
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
                    group = await self._group_source.sample(key)
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
        group = await self._judging.score(key, stored.group)
        if unusable(group) in (JUDGE_FAILED, JUDGE_UNAVAILABLE, JUDGE_ERROR):
            await self._reporter.warn(
                f"group {group.id} is skipped. The judge says: {failure_text(group)}", step
            )
        return group

    async def _check_judges_budget(self, batch: StepBatch) -> None:
        """Ends the run where no group has a score, since judges have cost what the job may spend.

        The groups are kept, to be judged when the job may spend more.

        Raises:
            BudgetSpentError: so it is.
        """
        budget = self._spec.budget
        group = unjudgeable(batch.groups)
        if group is None or not budget.HasField("max_judge_cost"):
            return
        used = of_judges(await self._ledger.judge_usage(self._job_id))
        if not (text := exhausted(BudgetSpec(max_judge_cost=budget.max_judge_cost), used)):
            return
        for position, each in enumerate(batch.groups):
            if each.skip_reason == JUDGE_BUDGET:
                each.skip_reason = ""
                key = GroupKey(self._job_id, batch.step, position)
                await self._ledger.save_group(key, COLLECTED, each)
        raise BudgetSpentError(BUDGET_EXHAUSTED, text)

    async def _give_up_or_warn(self, batch: StepBatch, rounds: int) -> None:
        """All groups of the step were of no use: makes room for another round, or ends the job."""
        shown = next((g for g in batch.groups if unusable(g) in _UNJUDGED), batch.groups[0])
        kind = unusable(shown)
        text = failure_text(shown)
        who, reason = _at_fault(shown)
        metrics.count_group(self._job_id, kind, len(batch.groups))
        if rounds == _USELESS_ROUNDS:
            raise JobFailedError(
                f"all {len(batch.groups)} groups of step {batch.step} failed {rounds} times in a"
                f" row. {who} says: {text}",
                reason=reason,
            )
        await self._reporter.warn(
            f"all {len(batch.groups)} groups of step {batch.step} failed; trying again."
            f" {who} says: {text}",
            batch.step,
        )
        for position, group in enumerate(batch.groups):
            key = GroupKey(self._job_id, batch.step, position)
            if unusable(group) in _UNJUDGED:
                group.skip_reason = ""
                await self._ledger.save_group(key, COLLECTED, group)
            elif self._group_source.renewable:
                await self._ledger.drop_group(key)
        await asyncio.sleep(2.0 ** (rounds - 1))

    def _is_foreground(self, step: int) -> bool:
        return step == self.foreground_step


def _at_fault(group: trajectory_pb2.Group) -> tuple[str, str]:
    """Who made a group of no use, and a job's reason when all groups are."""
    if unusable(group) in _UNJUDGED:
        return "The judge", "JUDGE_FAILING"
    if was_not_collected(group):
        return "The rollout service", "ROLLOUT_FAILING"
    return "The environment", "ENVIRONMENT_FAILING"


def _check_judged(job_id: str, batch: StepBatch) -> None:
    """Ends the job when no group has a score and asking again would not help."""
    group = unjudgeable(batch.groups)
    if group is None:
        return
    reason = unusable(group)
    metrics.count_group(job_id, reason, len(batch.groups))
    raise JobFailedError(
        f"no group of step {batch.step} could be judged. The judge says: {failure_text(group)}",
        reason="JUDGE_BUDGET_SPENT" if reason == JUDGE_BUDGET else NO_JUDGE_ANSWERS,
    )
