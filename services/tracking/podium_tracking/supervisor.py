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
from podium_tracking.adapters.processes import Worker
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
_TURN_SECONDS = 60.0


class Jobs(Protocol):
    """What is needed of `podium.sdk`'s jobs."""

    def list(self) -> AsyncIterator[pb.Job]:
        """Every job."""


@dataclass
class Line:
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
    process: Worker | None = None
    since: float = 0.0
    """When its worker was started."""

    @property
    def has_news(self) -> bool:
        """Whether there is something that it has not been told."""
        return self.step < self.job.completed_steps or self.job.state in TERMINAL or not self.step


class Supervisor:
    """Stateless: what a tracker has is asked of the tracker."""

    def __init__(self, jobs: Jobs, settings: Settings, secrets: Secrets) -> None:
        self._jobs = jobs
        self._settings = settings
        self._secrets = secrets
        self._lines: dict[tuple[str, str], Line] = {}

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
            await cancel_and_wait(*(line.task for line in self._lines.values() if line.task))

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
                line = self._lines.get(key)
                if line is None:
                    backoff = Backoff(_FIRST_RETRY_SECONDS, self._settings.retry_seconds)
                    self._lines[key] = Line(job, tracker, backoff)
                else:
                    line.job = job
        for key in self._lines.keys() - found:
            # Deleted, or long over.
            if self._lines[key].task is None:
                del self._lines[key]

    def _start_workers(self) -> None:
        places = self._settings.max_workers - sum(1 for x in self._lines.values() if x.task)
        now = time.monotonic()
        waiting = [
            line
            for line in self._lines.values()
            if not line.done and line.task is None and line.has_news and line.not_before <= now
        ]
        # Who has waited longest; a worker that gave its place back comes last.
        for line in sorted(waiting, key=lambda each: each.not_before)[: max(0, places)]:
            line.since = now
            line.task = asyncio.create_task(self._serve(line))
        if len(waiting) > places:
            self._take_turns(now)

    def _take_turns(self, now: float) -> None:
        """Asks the worker that has been at it longest for its place."""
        running = [line for line in self._lines.values() if line.process is not None]
        oldest = min(running, key=lambda line: line.since, default=None)
        if oldest is not None and now - oldest.since > _TURN_SECONDS:
            assert oldest.process is not None
            oldest.process.stop()

    async def _serve(self, line: Line) -> None:
        try:
            spec = line.job.spec.tracking
            secret, missing = self._secrets.find(line.tracker, secret_of(spec, line.tracker))
            if missing and not is_offline(spec, line.tracker):
                metrics.FAILURES.labels(line.tracker, "no_secret").inc()
                self._off(line, missing)
                return
            await self._work(line, secret)
        except Exception:
            logger.exception("a worker could not be run", extra=_context(line))
            line.not_before = time.monotonic() + line.backoff.next()
        finally:
            line.task = None

    async def _work(self, line: Line, secret: dict[str, str]) -> None:
        running = metrics.WORKERS.labels(line.tracker)
        process = line.process = await Worker.start(line.job.id, line.tracker, secret)
        running.inc()
        try:
            reason = await self._listen(line, process)
            code = await process.wait() if not reason else None
        finally:
            line.process = None
            await process.kill()
            running.dec()
        if code == worker.OK:
            # What it was sent at the job's end may take it a while to have.
            pause = line.backoff.next() if line.job.state in TERMINAL else 0.0
            line.not_before = time.monotonic() + pause
        elif code == worker.GONE:
            line.done = True
        elif code == worker.NO_PACKAGE:
            metrics.FAILURES.labels(line.tracker, "no_package").inc()
            self._off(line, "its client is not installed (podium[tracking])")
        else:
            metrics.FAILURES.labels(line.tracker, reason or "failed").inc()
            pause = line.backoff.next()
            line.not_before = time.monotonic() + pause
            logger.warning(
                "%s is behind and is tried again",
                line.tracker,
                extra=_context(line)
                | {"reason": reason or "failed", "step": line.step, "pause_seconds": pause},
            )

    async def _listen(self, line: Line, process: Worker) -> str:
        """Until it ends by itself, with no reason, or has to be ended."""
        busy = True
        while True:
            try:
                async with asyncio.timeout(self._settings.stall_seconds if busy else None):
                    told = await process.next()
                if told is None:
                    async with asyncio.timeout(self._settings.stall_seconds):
                        await process.wait()
                    return ""
            except TimeoutError:
                return "stalled"
            what, step = told
            busy = what in ("start", "done", "idle")
            if what == "step" and step > line.step:
                # What is told again after a failure is no progress.
                metrics.STEPS.labels(line.tracker).inc()
                line.backoff.reset()
            if what == "done":
                line.done = True
                logger.info("%s has the whole job", line.tracker, extra=_context(line))
            line.step = max(line.step, step)

    def _off(self, line: Line, why: str) -> None:
        line.not_before = time.monotonic() + _LOOK_AGAIN_SECONDS
        if line.problem != why:
            line.problem = why
            logger.warning("%s is off for this job: %s", line.tracker, why, extra=_context(line))

    def _measure(self) -> None:
        for tracker in TRACKERS:
            lines = [x for x in self._lines.values() if x.tracker == tracker and not x.done]
            lags = [line.job.completed_steps - line.step for line in lines]
            metrics.LAG.labels(tracker).set(max(0, *lags) if lags else 0)


def _context(line: Line) -> dict[str, str]:
    return {"job_id": line.job.id, "tracker": line.tracker}
