"""Tells one tracker of one job, from the ledger: what it lacks, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import groupby
from typing import Protocol, TypeVar

from podium.core.tasks import cancel_and_wait
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import trajectory_pb2

from podium_tracking.domain.trackers import Delivered, Tracker

R = TypeVar("R")

TERMINAL = frozenset({pb.JOB_STATE_SUCCEEDED, pb.JOB_STATE_FAILED, pb.JOB_STATE_CANCELLED})
_CHUNK = 32


class Jobs(Protocol):
    """What is needed of `podium.sdk`'s jobs."""

    async def get(self, job_id: str) -> pb.Job:
        """Reads a job."""

    def steps(self, job_id: str) -> AsyncIterator[pb.Step]:
        """Its committed steps, oldest first."""

    def trajectories(
        self, job_id: str, *, step: int | None = None
    ) -> AsyncIterator[trajectory_pb2.Trajectory]:
        """Its trajectories of training."""

    def watch(self, job_id: str, *, after_sequence: int = 0) -> AsyncIterator[pb.WatchJobResponse]:
        """Its events, until the one that ends it."""


class Delivery:
    """One run of it ends when the tracker knows the job's end, or the job has no news."""

    def __init__(
        self,
        jobs: Jobs,
        tracker: Tracker,
        idle_seconds: float,
        report: Callable[[str, int], None],
        stop: asyncio.Event | None = None,
    ) -> None:
        """`report` is called with `start` before each call of the tracker, and with `open`, `step`,
        `done` or `idle` and the last step delivered, after. `stop` ends it before an event."""
        self._jobs = jobs
        self._tracker = tracker
        self._idle = idle_seconds
        self._report = report
        self._step = 0
        self._stop = stop or asyncio.Event()

    async def run(self, job_id: str) -> bool:
        """Whether the tracker knows all that there will ever be."""
        job = await self._jobs.get(job_id)
        try:
            delivered = await self._call(self._tracker.open, job)
            if not delivered.finished:
                delivered = await self._cursor(job_id, delivered)
                self._report("open", self._step)
                if not await self._follow(job_id, delivered):
                    self._report("idle", self._step)
                    return False
                await self._finish(job_id)
        finally:
            await self._call(self._tracker.close)
        if delivered.finished:
            self._report("done", self._step)
            return True
        # Sent is not yet received: whether it is there, only asking anew tells.
        delivered = await self._call(self._tracker.open, job)
        await self._call(self._tracker.close)
        if delivered.finished:
            self._report("done", self._step)
        return delivered.finished

    async def _cursor(self, job_id: str, delivered: Delivered) -> Delivered:
        """Where episodes are told by step, the first step of which the tracker lacks some."""
        self._step = delivered.step
        if self._tracker.episodes_at != "step":
            return delivered
        steps = [step.number async for step in self._jobs.steps(job_id)]
        low, high = 0, len(steps)
        while low < high:
            middle = (low + high) // 2
            if await self._has(job_id, steps[middle]):
                low = middle + 1
            else:
                high = middle
        # Of the last one that it has, some may be missing.
        self._step = max(0, steps[low - 1] - 1) if low else 0
        return delivered

    async def _has(self, job_id: str, step: int) -> bool:
        async for first in self._jobs.trajectories(job_id, step=step):
            return await self._call(self._tracker.has, first.id)
        # Not kept any more: old ones go first.
        return True

    async def _follow(self, job_id: str, delivered: Delivered) -> bool:
        """Tells every event; False when there was none for a while, or it shall stop."""
        updates = aiter(self._jobs.watch(job_id, after_sequence=delivered.sequence))
        stop = asyncio.create_task(self._stop.wait())
        news: asyncio.Future[pb.WatchJobResponse | None] | None = None
        try:
            while True:
                news = asyncio.ensure_future(anext(updates, None))
                waiting = (news, stop)
                await asyncio.wait(waiting, timeout=self._idle, return_when=asyncio.FIRST_COMPLETED)
                if stop.done() or not news.done():
                    return False
                update = await news
                if update is None:
                    return True
                await self._tell(job_id, update)
        finally:
            await cancel_and_wait(stop, *([news] if news is not None else []))
            await updates.aclose()  # type: ignore[attr-defined]

    async def _tell(self, job_id: str, update: pb.WatchJobResponse) -> None:
        sequence = update.event.sequence
        if update.HasField("step") and update.step.number > self._step:
            if self._tracker.episodes_at == "step":
                await self._episodes_of(job_id, update.step)
            await self._call(self._tracker.step, sequence, update.step)
            self._step = update.step.number
            self._report("step", self._step)
        elif update.HasField("evaluation"):
            await self._call(self._tracker.evaluation, sequence, update.evaluation)

    async def _episodes_of(self, job_id: str, step: pb.Step) -> None:
        """Those that the step trained on, collected for it or for another."""
        wanted = set(step.group_ids)
        for number in sorted({_step_of(each) or step.number for each in wanted}):
            found = self._jobs.trajectories(job_id, step=number)
            async for chunk in _chunks(each async for each in found if each.group_id in wanted):
                await self._call(self._tracker.episodes, step.number, chunk)

    async def _finish(self, job_id: str) -> None:
        if self._tracker.episodes_at == "end":
            # Of groups that were drawn for no step: the one that took them.
            took = {id_: s.number async for s in self._jobs.steps(job_id) for id_ in s.group_ids}
            async for chunk in _chunks(self._jobs.trajectories(job_id)):
                for number, part in groupby(
                    chunk, lambda each: _step_of(each.group_id) or took.get(each.group_id, 0)
                ):
                    await self._call(self._tracker.episodes, number, list(part))
        await self._call(self._tracker.finish, await self._jobs.get(job_id))

    async def _call(self, function: Callable[..., R], *arguments: object) -> R:
        """The trackers' clients block: nothing of this process waits but this."""
        self._report("start", self._step)
        try:
            return await asyncio.to_thread(function, *arguments)
        finally:
            self._report("end", self._step)


def _step_of(group_id: str) -> int:
    """Of `{job}/s{step}/g{index}`; 0 for any other."""
    part = group_id.rsplit("/", 2)[-2] if group_id.count("/") >= 2 else ""
    return int(part[1:]) if part[:1] == "s" and part[1:].isdecimal() else 0


async def _chunks(
    found: AsyncIterator[trajectory_pb2.Trajectory],
) -> AsyncIterator[Sequence[trajectory_pb2.Trajectory]]:
    """A few at a time, without their token ids, which no tracker takes."""
    chunk: list[trajectory_pb2.Trajectory] = []
    async for each in found:
        for history in each.histories:
            del history.tokens.token_ids[:]
            del history.tokens.logprobs[:]
        chunk.append(each)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
