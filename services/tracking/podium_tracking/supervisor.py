"""Keeps a worker for every tracker that a job names, until it knows the job's end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from podium.core.backoff import Backoff
from podium.core.errors import PodiumError
from podium.core.tasks import cancel_and_wait
from podium.jobs.v1 import job_service_pb2 as pb

from podium_tracking import worker
from podium_tracking.adapters.processes import TrackerProcess
from podium_tracking.adapters.secrets import Secrets
from podium_tracking.delivery import TERMINAL
from podium_tracking.domain import metrics
from podium_tracking.domain.trackers import NEEDED, TRACKERS, asked, is_offline, secret_of
from podium_tracking.settings import Settings

logger = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS = 1.0
# Of a missing secret or package, which somebody may bring.
_LOOK_AGAIN_SECONDS = 60.0
# How long a worker keeps its place while others wait for one.
_PLACE_SECONDS = 60.0


class ListedJobs(Protocol):
    """What is needed of `podium.sdk`'s jobs."""

    def list(self) -> AsyncIterator[pb.Job]:
        """Every job."""


@dataclass
class TrackedJob:
    """One tracker of one job."""

    job: pb.Job
    tracker: str
    backoff: Backoff
    step: int = 0
    """The last step that it was told, as far as is known."""
    done: bool = False
    not_before: float = 0.0
    problem: str = ""
    """What was last logged of it: said once, not at every look."""
    task: asyncio.Task[None] | None = None
    process: TrackerProcess | None = None
    since: float = 0.0
    """When its worker was started."""

    @property
    def has_news(self) -> bool:
        """Whether there is something that it has not been told."""
        return self.step < self.job.completed_steps or self.job.state in TERMINAL or not self.step


class TrackingSupervisor:
    """Stateless: what a tracker has is asked of the tracker."""

    def __init__(self, jobs: ListedJobs, settings: Settings, secrets: Secrets) -> None:
        self._jobs = jobs
        self._settings = settings
        self._secrets = secrets
        self._tracked: dict[tuple[str, str], TrackedJob] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Looks and tells inside the block."""
        for name in TRACKERS:
            if self._secrets.find(name, "")[1]:
                logger.info(
                    "%s is off where a job names no secret: %s not in the environment",
                    name,
                    ", ".join(NEEDED[name]),
                )
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            await cancel_and_wait(task)
            await cancel_and_wait(
                *(tracked.task for tracked in self._tracked.values() if tracked.task)
            )

    async def _run(self) -> None:
        while True:
            try:
                await self._look()
            except PodiumError as error:
                logger.warning("the controller does not answer", extra={"error": error.message})
            self._start_workers()
            self._measure()
            await asyncio.sleep(self._settings.poll_seconds)

    async def _look(self) -> None:
        since = datetime.now(UTC) - timedelta(hours=self._settings.lookback_hours)
        found: set[tuple[str, str]] = set()
        async for job in self._jobs.list():
            if job.HasField("end_time") and job.end_time.ToDatetime(UTC) < since:
                continue
            for tracker in asked(job.spec):
                key = (job.id, tracker)
                found.add(key)
                tracked = self._tracked.get(key)
                if tracked is None:
                    backoff = Backoff(_FIRST_RETRY_SECONDS, self._settings.retry_seconds)
                    self._tracked[key] = TrackedJob(job, tracker, backoff)
                else:
                    tracked.job = job
        for key in self._tracked.keys() - found:
            # Deleted, or long over.
            if self._tracked[key].task is None:
                del self._tracked[key]

    def _start_workers(self) -> None:
        places = self._settings.max_workers - sum(1 for x in self._tracked.values() if x.task)
        now = time.monotonic()
        waiting = [
            tracked
            for tracked in self._tracked.values()
            if not tracked.done
            and tracked.task is None
            and tracked.has_news
            and tracked.not_before <= now
        ]
        # Who has waited longest; a worker that gave its place back comes last.
        for tracked in sorted(waiting, key=lambda each: each.not_before)[: max(0, places)]:
            tracked.since = now
            tracked.task = asyncio.create_task(self._serve(tracked))
        if len(waiting) > places:
            self._free_a_place(now)

    def _free_a_place(self, now: float) -> None:
        """Asks the worker that has been at it longest for its place."""
        running = [tracked for tracked in self._tracked.values() if tracked.process is not None]
        oldest = min(running, key=lambda tracked: tracked.since, default=None)
        if oldest is not None and now - oldest.since > _PLACE_SECONDS:
            assert oldest.process is not None
            oldest.process.stop()

    async def _serve(self, tracked: TrackedJob) -> None:
        try:
            spec = tracked.job.spec.tracking
            secret, missing = self._secrets.find(tracked.tracker, secret_of(spec, tracked.tracker))
            if missing and not is_offline(spec, tracked.tracker):
                metrics.FAILURES.labels(tracked.tracker, "no_secret").inc()
                self._off(tracked, missing)
                return
            await self._work(tracked, secret)
        except Exception:
            logger.exception("a worker could not be run", extra=_context(tracked))
            tracked.not_before = time.monotonic() + tracked.backoff.next()
        finally:
            tracked.task = None

    async def _work(self, tracked: TrackedJob, secret: dict[str, str]) -> None:
        running = metrics.WORKERS.labels(tracked.tracker)
        process = tracked.process = await TrackerProcess.start(
            tracked.job.id, tracked.tracker, secret
        )
        running.inc()
        try:
            reason = await self._listen(tracked, process)
            code = await process.wait() if not reason else None
        finally:
            tracked.process = None
            await process.kill()
            running.dec()
        if code == worker.OK:
            # What it was sent at the job's end may take it a while to have.
            pause = tracked.backoff.next() if tracked.job.state in TERMINAL else 0.0
            tracked.not_before = time.monotonic() + pause
        elif code == worker.GONE:
            tracked.done = True
        elif code == worker.NO_PACKAGE:
            metrics.FAILURES.labels(tracked.tracker, "no_package").inc()
            self._off(tracked, "its client is not installed (podium[tracking])")
        else:
            metrics.FAILURES.labels(tracked.tracker, reason or "failed").inc()
            pause = tracked.backoff.next()
            tracked.not_before = time.monotonic() + pause
            logger.warning(
                "%s is behind and is tried again",
                tracked.tracker,
                extra=_context(tracked)
                | {"reason": reason or "failed", "step": tracked.step, "pause_seconds": pause},
            )

    async def _listen(self, tracked: TrackedJob, process: TrackerProcess) -> str:
        """Until it ends by itself, with no reason, or has to be ended."""
        busy = True
        while True:
            try:
                async with asyncio.timeout(self._settings.stall_seconds if busy else None):
                    report = await process.next()
                if report is None:
                    async with asyncio.timeout(self._settings.stall_seconds):
                        await process.wait()
                    return ""
            except TimeoutError:
                return "stalled"
            what, step = report
            busy = what in ("start", "done", "idle")
            if what == "step" and step > tracked.step:
                # What is told again after a failure is no progress.
                metrics.STEPS.labels(tracked.tracker).inc()
                tracked.backoff.reset()
            if what == "done":
                tracked.done = True
                logger.info("%s has the whole job", tracked.tracker, extra=_context(tracked))
            tracked.step = max(tracked.step, step)

    def _off(self, tracked: TrackedJob, why: str) -> None:
        tracked.not_before = time.monotonic() + _LOOK_AGAIN_SECONDS
        if tracked.problem != why:
            tracked.problem = why
            logger.warning(
                "%s is off for this job: %s", tracked.tracker, why, extra=_context(tracked)
            )

    def _measure(self) -> None:
        for tracker in TRACKERS:
            open_ = [x for x in self._tracked.values() if x.tracker == tracker and not x.done]
            lags = [tracked.job.completed_steps - tracked.step for tracked in open_]
            metrics.LAG.labels(tracker).set(max(0, *lags) if lags else 0)


def _context(tracked: TrackedJob) -> dict[str, str]:
    return {"job_id": tracked.job.id, "tracker": tracked.tracker}
