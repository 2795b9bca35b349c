"""Steps take the groups that are ready, in the order in which they became so.

A job has so many groups underway that none needs to become too old (`_wanted`). A step takes the
first that are ready; what is slow goes on meanwhile, and trains in a later step. Which groups a
step takes is in the ledger before the trainer sees them (docs/decisions/0053).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from opentelemetry import trace
from podium.core.contract.rollout import attempts_allowed
from podium.core.tasks import cancel_and_wait
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_controller.domain import metrics
from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.identifiers import WAITING_ROOM
from podium_controller.domain.ports import COLLECTED, JUDGED, GroupKey, Ledger, StoredGroup
from podium_controller.domain.staleness import staleness
from podium_controller.domain.step_metrics import first_start_ns
from podium_controller.domain.taken import Drawn
from podium_controller.domain.timestamps import now_ns
from podium_controller.domain.trainable_groups import (
    can_teach,
    first_step,
    is_worth_replacing,
    steps_in,
)
from podium_controller.training import step_span
from podium_controller.training.collector import StepBatch
from podium_controller.training.concurrency import Concurrency
from podium_controller.training.draws import Draw, Draws
from podium_controller.training.group_sources import DrawnGroups
from podium_controller.training.judging import Scoring, tell_unjudged, unusable
from podium_controller.training.reporter import COLLECT, Reporter
from podium_controller.training.shortfall import Shortfall
from podium_controller.training.useless import Keyed, UselessGroups

# How often a group is attempted that becomes too old each time.
_TRIES = 4


@dataclass(eq=False)
class _Underway:
    """A group that is being sampled or judged."""

    draw: Draw
    step: int
    """The next one to take groups when it was begun."""
    task: asyncio.Task[None] | None = None
    version: int | None = None
    """Served when its turn at the pool came: no token of it is older. None before."""
    is_sampling: bool = True


@dataclass(eq=False)
class _Ready:
    draw: Draw
    step: int
    group: trajectory_pb2.Group
    counts: bool
    """Whether it is one of those that a step asks for."""


class ReadyFirst:
    """The batches of one job."""

    def __init__(
        self,
        job_id: str,
        spec: spec_pb2.JobSpec,
        source: DrawnGroups,
        scoring: Scoring,
        ledger: Ledger,
        reporter: Reporter,
        begin_span: Callable[[int], trace.Span],
        draws: Draws,
        taken: int,
        concurrency: Concurrency,
    ) -> None:
        """`taken` is the last step that has its groups; `draws` stand where it left them."""
        self._job_id = job_id
        self._spec = spec
        self._source = source
        self._scoring = scoring
        self._ledger = ledger
        self._reporter = reporter
        self._begin_span = begin_span
        self._useless = UselessGroups(job_id, ledger, reporter)
        self._shortfall = Shortfall(spec.rollout, reporter)
        self._draws = draws
        self._concurrency = concurrency
        self._size = spec.rollout.groups_per_step
        self._attempts = attempts_allowed(spec.rollout)
        self._version = -1
        self._taken = taken
        self._underway: dict[int, _Underway] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._ready: list[_Ready] = []
        self._stored: dict[int, StoredGroup] = {}
        self._due: deque[Draw] = deque()
        """Drawn before, and to be attempted before others are drawn."""
        self._tries: Counter[int] = Counter()
        self._stale = 0
        """Groups that became too old since a step took groups."""
        self._stale_in_a_row = 0
        self._rounds = 0
        self._error: BaseException | None = None
        self._is_closed = False
        self._news = asyncio.Event()
        # Of whoever runs the job, and not of the group whose end begins another.
        self._context = contextvars.copy_context()

    async def open(self) -> None:
        """Goes on with what is stored and no step has taken. To be called once, first."""
        if self._taken == self._spec.training.steps:
            return
        self._stored = await self._ledger.stored_groups(self._job_id, WAITING_ROOM)
        self._draws.draw_through(self._taken + 1, self._stored)
        known = {each.number for each in self._draws.open}
        self._stored = {n: each for n, each in self._stored.items() if n in known}
        # What waits for nothing but a step first: it was ready before.
        self._due = deque(
            sorted(self._draws.open, key=lambda draw: (not self._is_judged(draw), draw.number))
        )

    def advance(self, version: int) -> None:
        """Version `version` is served: begins all that this allows."""
        self._version = version
        self._taken = max(self._taken, version)
        self._concurrency.watch(self._collected, self._fill)
        self._fill()

    def is_ready(self, step: int) -> bool:
        """Whether `take` would not have to wait."""
        return step <= self._taken or self._is_complete()

    async def take(self, step: int) -> StepBatch:
        """The groups of the next step, when enough are there.

        Raises:
            BudgetSpentError: judges have cost what they may, and no group has a score.
            JobFailedError: all become too old (STALENESS_EXCEEDED), or fail again and again; see
                `Collector.collect`.
        """
        batch = StepBatch(step, [], now_ns(), self._begin_span(step))
        try:
            with step_span.current(batch.span):
                if step <= self._taken:
                    await self._taken_before(batch)
                else:
                    await self._take(batch)
        except BaseException:
            batch.span.end()
            raise
        batch.staleness = max(staleness(g, self._job_id, step) for g in batch.groups)
        batch.start_ns = min(batch.start_ns, first_start_ns(batch.groups) or batch.start_ns)
        if self._attempts > self._size:
            batch.replaced = max(0, len(batch.groups) - self._size)
        return batch

    async def close(self) -> None:
        """Ends what is being collected; stored groups stay stored."""
        self._is_closed = True
        ending = self._end(lambda each: True)
        await cancel_and_wait(*ending, *self._ending)
        await self._concurrency.close()

    async def _taken_before(self, batch: StepBatch) -> None:
        stored = await self._ledger.stored_groups(self._job_id, batch.step)
        batch.groups = [stored[position].group for position in sorted(stored)]

    async def _take(self, batch: StepBatch) -> None:
        step = batch.step
        async with self._reporter.timed(COLLECT, batch.seconds, step=step):
            while True:
                self._news.clear()
                if self._error is not None:
                    raise self._error
                self._drop_late()
                self._check_pool(step)
                if await self._made_room(step):
                    continue
                if self._is_complete():
                    break
                self._fill()
                await self._news.wait()
        await self._tell_late(batch)
        count = first_step([each.counts for each in self._ready], self._size, self._attempts)
        taken = self._ready[:count]
        batch.limit = self._concurrency.adapted
        batch.groups = [each.group for each in taken]
        batch.carried = sum(each.step < step for each in taken)
        for each in batch.groups:
            each.step = step
        last = step == self._spec.training.steps
        if last:
            await cancel_and_wait(*self._end(lambda each: True), *self._ending)
        self._draws.settle(each.draw.number for each in taken)
        drawn = Drawn(step, self._draws.state)
        await self._ledger.take_groups(self._job_id, batch.groups, drawn, last=last)
        self._ready = self._ready[count:]
        self._taken, self._rounds = step, 0
        if self._attempts > self._size:
            loss = self._spec.training.loss
            await self._shortfall.look(step, [can_teach(each, loss) for each in batch.groups])
        self._drop_late()
        self._fill()

    def _is_complete(self) -> bool:
        counts = [each.counts for each in self._ready]
        return first_step(counts, self._size, self._attempts) is not None

    def _age(self, underway: _Underway) -> int:
        """Versions between its oldest token and the weights that the next step trains."""
        return 0 if underway.version is None else self._taken - underway.version

    def _fill(self) -> None:
        """Begins as many groups as may be underway."""
        if self._is_closed or self._error is not None or self._version < 0:
            return
        sampling = sum(each.is_sampling for each in self._underway.values())
        left = self._wanted() - len(self._underway)
        more = max(0, min(left, self._concurrency.groups - sampling))
        for _ in range(more):
            self._begin()
        self._concurrency.show(sampling + more)
        # Judging needs no place.
        while self._due and len(self._underway) < self._wanted() and self._is_judged(self._due[0]):
            self._begin()

    def _collected(self) -> int:
        """Groups whose turn at the pool has come."""
        began = (each.is_sampling and each.version is not None for each in self._underway.values())
        return sum(began)

    def _wanted(self) -> int:
        """How many groups may be underway.

        Steps up to `version + 1 + max_staleness` may train what is begun now; whatever is ready
        for these is not to be begun. With so many at once each has, one with another, as many
        steps' time as it may take.
        """
        rollout, training = self._spec.rollout, self._spec.training
        furthest = min(self._version + 1 + rollout.max_staleness, training.steps)
        counts = [each.counts for each in self._ready]
        steps, over = steps_in(counts, self._size, self._attempts)
        return max(0, (furthest - self._taken - steps) * self._size - over)

    def _begin(self) -> None:
        step = self._taken + 1
        draw = self._due.popleft() if self._due else self._draws.draw(step)
        underway = _Underway(draw, step, is_sampling=draw.number not in self._stored)
        self._underway[draw.number] = underway
        task = asyncio.get_running_loop().create_task(
            self._group(underway), name=f"collect-{draw.number}", context=self._context.copy()
        )
        underway.task = task
        task.add_done_callback(lambda done: self._done(underway, done))

    async def _group(self, underway: _Underway) -> None:
        draw = underway.draw
        key = GroupKey(self._job_id, WAITING_ROOM, draw.number)
        stored = self._stored.get(draw.number)
        if stored is None:
            if self._tries[draw.number]:
                await self._ledger.drop_group(key)

            def begins() -> None:
                underway.version = self._version

            group = await self._source.sample(draw, underway.step, begins)
            await self._ledger.save_group(key, COLLECTED, group)
            stored = StoredGroup(draw.number, COLLECTED, group)
            underway.is_sampling = False
            self._stored[draw.number] = stored
            self._fill()
        group = stored.group
        if stored.status != JUDGED:
            group = await self._scoring.score(key, group)
            await tell_unjudged(self._reporter, group, underway.step)
        del self._stored[draw.number]
        counts = self._counts(group)
        self._ready.append(_Ready(draw, underway.step, group, counts))

    def _counts(self, group: trajectory_pb2.Group) -> bool:
        if self._attempts == self._size or not is_worth_replacing(group):
            return True
        return can_teach(group, self._spec.training.loss)

    def _done(self, underway: _Underway, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        error = None if task.cancelled() else task.exception()
        if self._underway.get(underway.draw.number) is underway:
            del self._underway[underway.draw.number]
            self._error = self._error or error
            # By somebody else: the whole process ends.
            self._is_closed |= task.cancelled()
        self._news.set()
        self._fill()

    def _is_judged(self, draw: Draw) -> bool:
        stored = self._stored.get(draw.number)
        return stored is not None and stored.status == JUDGED

    def _end(self, which: Callable[[_Underway], bool]) -> list[asyncio.Task[None]]:
        """Ends some of what is underway, without a result."""
        ending = []
        for number, each in list(self._underway.items()):
            if which(each) and each.task is not None:
                del self._underway[number]
                self._ending.add(each.task)
                each.task.cancel()
                ending.append(each.task)
        return ending

    def _drop_late(self) -> None:
        """Ends and drops what no step can train any more; it is attempted anew.

        What is being judged comes to its end: its judges are to be paid.
        """
        step, limit = self._taken + 1, self._spec.rollout.max_staleness
        late = [r for r in self._ready if staleness(r.group, self._job_id, step) > limit]
        self._ready = [each for each in self._ready if each not in late]
        again = [each.draw for each in late]
        underway = self._underway.values()
        hopeless = [each for each in underway if each.is_sampling and self._age(each) > limit]
        self._end(lambda each: each in hopeless)
        again += [each.draw for each in hopeless]
        for draw in again:
            self._stale += 1
            self._tries[draw.number] += 1
            metrics.count_group(self._job_id, metrics.STALE)
            if self._tries[draw.number] < _TRIES:
                self._due.append(draw)
            else:
                self._draws.settle([draw.number])
        if late or self._ready:
            self._stale_in_a_row = 0 if self._ready else self._stale_in_a_row + len(late)

    def _check_pool(self, step: int) -> None:
        if self._stale_in_a_row >= _TRIES * self._size:
            raise JobFailedError(
                f"{self._stale_in_a_row} groups in a row came from weights that are too old for"
                f" step {step}; max_staleness is {self._spec.rollout.max_staleness}",
                reason="STALENESS_EXCEEDED",
            )

    async def _tell_late(self, batch: StepBatch) -> None:
        batch.stale, self._stale = self._stale, 0
        if batch.stale:
            limit = self._spec.rollout.max_staleness
            await self._reporter.warn(
                f"{batch.stale} groups were sampled more than {limit} versions ago, or were not"
                f" ready by then; they are attempted anew, up to {_TRIES} times in all",
                batch.step,
            )

    async def _made_room(self, step: int) -> bool:
        """Whether the first groups of the step were of no use, not one of them, and are gone."""
        head = self._ready[: self._size]
        if len(head) < self._size or not all(unusable(each.group) for each in head):
            return False
        keyed = [(GroupKey(self._job_id, WAITING_ROOM, r.draw.number), r.group) for r in head]
        await self._useless.check_judges(step, keyed)
        is_lost = self._source.is_lost(step)
        kept: list[Keyed] = []
        if self._useless.check_environments(step, keyed, is_lost=is_lost):
            await self._useless.drop(keyed)
        else:
            self._rounds += 1
            kept = await self._useless.make_room(step, keyed, self._rounds)
        self._ready = [each for each in self._ready if each not in head]
        for key, group in kept:
            self._stored[key.position] = StoredGroup(key.position, COLLECTED, group)
            self._due.extend(each.draw for each in head if each.draw.number == key.position)
        # Two scenarios that always break must not be all that the step attempts: others are drawn.
        rejudged = {key.position for key, _ in kept}
        self._draws.settle({each.draw.number for each in head} - rejudged)
        self._fill()
        return True
