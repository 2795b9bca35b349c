"""Counts what running jobs use of trainers and pools (docs/decisions/0041)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from podium.core.errors import PodiumError
from podium.jobs.v1 import job_service_pb2 as pb

from podium_controller.domain import metrics
from podium_controller.domain.accounts import UsageBook
from podium_controller.domain.budget import ProjectUse
from podium_controller.domain.errors import DatabaseUnavailableError, LeaseLostError
from podium_controller.domain.ports import JobRecord
from podium_controller.domain.timestamps import month_start
from podium_controller.domain.usage import add
from podium_controller.pools.pools import Pool
from podium_controller.pools.projects import Projects, use_of
from podium_controller.pools.trainer_pools import TrainerPool

logger = logging.getLogger(__name__)

# What a controller that dies has not reported yet.
_REPORT_SECONDS = 30.0
_ASK_SECONDS = 5.0


@dataclass
class _Run:
    """A job that runs, and what it has used since the last report."""

    job: JobRecord
    project: str
    """As metrics have it."""
    pool: str
    gpus: int
    """Of its trainer."""
    trainer_pool: TrainerPool | None
    """None for a trainer of its own."""
    since: float
    """When its trainer's time was counted last."""
    holds_trainer: bool = False
    trainer_seconds: float = 0.0
    pool_seconds: float = 0.0
    pending: tuple[int, pb.Usage] | None = None
    """A report of which it is not known whether it was counted."""
    shown: pb.Usage = field(default_factory=pb.Usage)
    """What Prometheus was told."""
    reporting: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass
class _PoolUse:
    pool: Pool
    gpus: int | None = None
    """None until it was heard."""
    jobs: set[str] = field(default_factory=set)


class Meter:
    """Of the controller that has the lease."""

    def __init__(
        self,
        book: UsageBook,
        clock: Callable[[], float] = time.monotonic,
        projects: Projects | None = None,
    ) -> None:
        """`projects` are those of which it is shown how much of a budget is used."""
        self._book = book
        self._projects = projects or Projects()
        self._clock = clock
        self._runs: dict[str, _Run] = {}
        self._pools: dict[str, _PoolUse] = {}
        self._number = 0
        self._news = asyncio.Event()
        """There is a pool that was not asked yet."""

    def begin(
        self,
        job: JobRecord,
        pool: Pool,
        project: str,
        gpus: int,
        trainer_pool: TrainerPool | None = None,
    ) -> RunMeter:
        """A job runs at a pool, and will hold a trainer of so many GPUs.

        Args:
            project: as metrics have it.
            trainer_pool: where it trains, instead, beside others.
        """
        if trainer_pool is not None:
            gpus = trainer_pool.gpus
            # What it used of the trainer before, it has told, or somebody else has.
            trainer_pool.time.take(job.id)
        use = self._pools.setdefault(pool.name, _PoolUse(pool))
        self._share(use)
        use.jobs.add(job.id)
        if use.gpus is None:
            self._news.set()
        now = self._clock()
        self._runs[job.id] = _Run(job, project, pool.name, gpus, trainer_pool, now)
        return RunMeter(self, job.id)

    async def run(self) -> None:
        """Reports every so often, until it is cancelled."""
        try:
            while True:
                self._news.clear()
                for use in list(self._pools.values()):
                    await self._ask(use)
                for job_id in list(self._runs):
                    await self._report(job_id)
                await self._show()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_REPORT_SECONDS):
                        await self._news.wait()
        finally:
            for job_id in list(self._runs):
                self._forget(job_id)

    def hold_trainer(self, job_id: str) -> None:
        """See `ports.JobMeter`."""
        run = self._runs.get(job_id)
        # Of a pool it holds nothing, and uses what its calls use.
        if run is not None and run.trainer_pool is None and not run.holds_trainer:
            run.holds_trainer, run.since = True, self._clock()

    async def spent(self, job_id: str) -> pb.Usage:
        """See `ports.JobMeter`."""
        await self._report(job_id)
        total = (await self._book.totals([job_id]))[job_id]
        run = self._runs.get(job_id)
        if run is not None and run.pending is not None:
            # Not written down yet, but used.
            add(total, run.pending[1])
        return total

    async def spent_by_project(self, job_id: str, project: str, *, in_all: bool) -> ProjectUse:
        """See `ports.JobMeter`."""
        await self._report(job_id)
        month = await self._book.of_projects(month_start(), project)
        total = await self._book.of_projects(0, project) if in_all else {}
        return ProjectUse(month.get(project, pb.Usage()), total.get(project, pb.Usage()))

    async def end(self, job_id: str) -> None:
        """See `JobMeter.close`."""
        if job_id in self._runs:
            use = self._pools[self._runs[job_id].pool]
            if use.gpus is None:
                await self._ask(use)
            await self._report(job_id)
            self._forget(job_id)

    def _forget(self, job_id: str) -> None:
        run = self._runs.pop(job_id, None)
        if run is None:
            return
        use = self._pools[run.pool]
        self._share(use)
        use.jobs.discard(job_id)
        if not use.jobs:
            del self._pools[run.pool]
        metrics.forget_usage(job_id)

    async def _ask(self, use: _PoolUse) -> None:
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                use.gpus = await use.pool.inference.gpus()
        except (PodiumError, TimeoutError):
            # As many as before, as long as it does not say otherwise.
            logger.debug("a pool does not say how many GPUs it has", extra={"pool": use.pool.name})

    def _share(self, use: _PoolUse) -> None:
        """Divides a pool's time since the last call among the jobs that run there."""
        parts, idle = use.pool.fair_share.take_use()
        there = [self._runs[job_id] for job_id in use.jobs if job_id in self._runs]
        if not there:
            return
        # What a client samples passes the controller by: such a job has an equal part.
        unseen = [run for run in there if run.job.spec.HasField("client")]
        seen = [run for run in there if not run.job.spec.HasField("client")]
        whole = idle + sum(parts.values())
        for run in unseen:
            run.pool_seconds += whole / len(there)
        for run in seen:
            own = parts.get(run.job.id, 0.0) + idle / len(seen)
            run.pool_seconds += own * len(seen) / len(there)

    def _take(self, run: _Run) -> pb.Usage:
        """What is to be reported, which counts as reported from now on."""
        now = self._clock()
        if run.holds_trainer:
            run.trainer_seconds += now - run.since
        if run.trainer_pool is not None:
            run.trainer_seconds += run.trainer_pool.time.take(run.job.id)
        run.since = now
        use = self._pools[run.pool]
        self._share(use)
        usage = pb.Usage(
            trainer_seconds=run.trainer_seconds,
            trainer_gpu_seconds=run.trainer_seconds * run.gpus,
        )
        run.trainer_seconds = 0.0
        # Until the pool has said how many GPUs it has, its time waits.
        if use.gpus is not None:
            usage.pool_seconds = run.pool_seconds
            usage.pool_gpu_seconds = run.pool_seconds * use.gpus
            run.pool_seconds = 0.0
        return usage

    async def _report(self, job_id: str) -> None:
        run = self._runs.get(job_id)
        if run is None:
            return
        async with run.reporting:
            try:
                # One whose fate is not known goes again as it was, and is counted once.
                if run.pending is not None:
                    await self._book.report(job_id, *run.pending)
                self._number += 1
                run.pending = self._number, self._take(run)
                if run.pending[1].ByteSize():
                    await self._book.report(job_id, *run.pending)
                run.pending = None
            except DatabaseUnavailableError:
                logger.warning("what a job uses is reported later", extra={"job": job_id})

    async def _show(self) -> None:
        """Counters go on from what was used in all, whoever counted it."""
        budgets = self._projects.with_budgets()
        try:
            for name, used in (await use_of(budgets, self._book.of_projects)).items():
                for bound in budgets[name].bounds(used):
                    metrics.show_budget(name, bound.name, bound.used, bound.most)
            totals = await self._book.totals(list(self._runs)) if self._runs else {}
        except DatabaseUnavailableError:
            return
        for job_id, total in totals.items():
            run = self._runs.get(job_id)
            if run is not None:
                metrics.count_usage(job_id, run.project, run.shown, total)
                run.shown = total


class RunMeter:
    """Implements `ports.JobMeter`."""

    def __init__(self, meter: Meter, job_id: str) -> None:
        self._meter = meter
        self._job_id = job_id

    def hold_trainer(self) -> None:
        """See `ports.JobMeter`."""
        self._meter.hold_trainer(self._job_id)

    async def spent(self) -> pb.Usage:
        """See `ports.JobMeter`."""
        return await self._meter.spent(self._job_id)

    async def spent_by_project(self, project: str, *, in_all: bool) -> ProjectUse:
        """See `ports.JobMeter`."""
        return await self._meter.spent_by_project(self._job_id, project, in_all=in_all)

    async def close(self) -> None:
        """See `ports.JobMeter`."""
        try:
            await self._meter.end(self._job_id)
        except LeaseLostError:
            logger.info("the lease is lost; the last report is too", extra={"job": self._job_id})
