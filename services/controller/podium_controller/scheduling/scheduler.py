"""Takes the lease, and runs the jobs that are next while it holds it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from podium.core.tasks import cancel_and_wait
from podium.jobs.v1 import job_service_pb2 as pb

from podium_controller.domain import job_states, metrics
from podium_controller.domain.errors import DatabaseUnavailableError, LeaseLostError
from podium_controller.domain.leases import Leases
from podium_controller.domain.ports import JobRecord, LeaderLedger, Peers
from podium_controller.domain.stop_signals import StopSignals
from podium_controller.domain.timestamps import month, now_ns
from podium_controller.domain.waits import Wait
from podium_controller.pools.pools import Pool, Pools
from podium_controller.pools.projects import Projects, project_of, use_of
from podium_controller.pools.trainer_pools import TrainerPools
from podium_controller.scheduling.admission_queue import AdmissionQueue, QueueLimits
from podium_controller.scheduling.awaited import awaited
from podium_controller.scheduling.janitor import Janitor
from podium_controller.scheduling.job_run import JobRun
from podium_controller.scheduling.meter import Meter
from podium_controller.scheduling.trainer_places import Place, TrainerPlaces, holds_of
from podium_controller.settings import Settings
from podium_controller.training.judge_spending import ProjectAccounts

logger = logging.getLogger(__name__)

# Renewals in the life of a lease: two may fail.
_RENEWALS = 3


@dataclass(frozen=True)
class _Running:
    control: StopSignals
    task: asyncio.Task[None]
    place: Place


class Scheduler:
    """One controller of possibly several; the one with the lease is active."""

    def __init__(
        self,
        peers: Peers,
        pools: Pools,
        projects: Projects,
        leases: Leases,
        ledger_for: Callable[[int], LeaderLedger],
        settings: Settings,
        trainer_pools: TrainerPools | None = None,
    ) -> None:
        """`ledger_for` makes the ledger of a lease from its fencing token."""
        self._trainer_pools = trainer_pools or TrainerPools([])
        self._peers = peers
        self._pools = pools
        self._projects = projects
        self._project_accounts = ProjectAccounts()
        self._limits = QueueLimits(settings.max_active_jobs, settings.max_jobs_per_pool)
        self._leases = leases
        self._ledger_for = ledger_for
        self._settings = settings
        self._holder = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        self._runs: dict[str, _Running] = {}
        self._trainers_awaited: Counter[str] | None = None
        self._meter: Meter
        self._news = asyncio.Event()

    def wake(self) -> None:
        """A job's state was changed through this process."""
        self._news.set()

    def episodes_running(self, job_id: str) -> int | None:
        """A job's episodes in flight; None when it does not run here."""
        run = self._runs.get(job_id)
        pool = self._pools.get(run.place.pool) if run is not None else None
        return pool.fair_share.running(job_id) if pool is not None else None

    async def run(self) -> None:
        """Stands by, leads, stands by again; until it is cancelled."""
        while True:
            try:
                epoch = await self._leases.acquire(self._holder, self._settings.lease_seconds)
                if epoch is not None:
                    await self._lead(epoch)
            except DatabaseUnavailableError:
                logger.warning("the database cannot be reached; standing by")
            except Exception:
                logger.exception("leading ended with an error; standing by")
            await asyncio.sleep(self._settings.poll_seconds)

    async def _lead(self, epoch: int) -> None:
        logger.info("this controller runs the jobs now", extra={"epoch": epoch})
        metrics.LEADER.set(1)
        ledger = self._ledger_for(epoch)
        keeping = asyncio.create_task(self._keep(epoch))
        self._meter = Meter(ledger.usage, time.monotonic, self._projects)
        scanning = asyncio.create_task(self._scan(ledger))
        janitor = Janitor(
            ledger.trajectories,
            self._settings.trajectory_store_max_bytes,
            self._settings.trajectory_retention_days,
        )
        tidying = asyncio.create_task(janitor.run())
        metering = asyncio.create_task(self._meter.run())
        work = (keeping, scanning, tidying, metering)
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for task in work:
                if task.done():
                    task.result()
        except LeaseLostError:
            logger.warning("the lease is lost; standing by")
        finally:
            metrics.LEADER.set(0)
            for metric in metrics.PER_LEADER:
                metric.clear()
            runs = [running.task for running in self._runs.values()]
            self._runs.clear()
            await cancel_and_wait(scanning, tidying, *runs)
            await cancel_and_wait(metering)
            await cancel_and_wait(keeping)
            await self._release(epoch)

    async def _keep(self, epoch: int) -> None:
        """Renews the lease; ends when another has it, or may have had it for as long as it lasts.

        A lease that ran out is its holder's until another takes it, which the next renewal tells,
        and what is written meanwhile is fenced. So a process, or a database, that stood still for
        more than a lease costs no work where nobody waits for it.
        """
        ttl = self._settings.lease_seconds
        lost_at = time.monotonic() + 2 * ttl
        while True:
            await asyncio.sleep(ttl / _RENEWALS)
            asked = time.monotonic()
            try:
                async with asyncio.timeout(max(min(ttl, lost_at - asked), 0.1)):
                    if not await self._leases.renew(self._holder, epoch, ttl):
                        raise LeaseLostError("another controller has taken over")
                    lost_at = asked + 2 * ttl
            except (DatabaseUnavailableError, TimeoutError):
                if time.monotonic() >= lost_at:
                    raise LeaseLostError("the lease could not be renewed") from None

    async def _release(self, epoch: int) -> None:
        try:
            async with asyncio.timeout(self._settings.lease_seconds):
                await self._leases.release(self._holder, epoch)
        except (DatabaseUnavailableError, TimeoutError):
            logger.info("the lease could not be given back; it ends by itself")

    async def _scan(self, ledger: LeaderLedger) -> None:
        """Starts, pauses and cancels runs as the database says, at news and at intervals."""
        while True:
            self._news.clear()
            try:
                await self._look(ledger)
            except DatabaseUnavailableError:
                logger.warning("the database cannot be reached; trying again")
            try:
                async with asyncio.timeout(self._settings.poll_seconds):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def _look(self, ledger: LeaderLedger) -> None:
        for job_id in [job_id for job_id, run in self._runs.items() if run.task.done()]:
            _report(self._runs.pop(job_id).task)
        active = await ledger.in_states(sorted(job_states.ACTIVE))
        for job in active:
            await self._steer(job, ledger)
        needed = {job.id for job in active} | self._runs.keys()
        await self._peers.trainers.retain(self._with_own_trainers(active))
        await self._peers.environments.retain(needed)
        await self._admit(ledger)
        self._show(await ledger.counts(), await ledger.judge_tokens(month()))

    def _show(
        self, counts: Mapping[tuple[str, job_states.State], int], judge_tokens: Mapping[str, int]
    ) -> None:
        by_state: Counter[job_states.State] = Counter()
        queued: Counter[str] = Counter()
        for (project, state), jobs in counts.items():
            by_state[state] += jobs
            if state == pb.JOB_STATE_QUEUED:
                queued[self._projects.label(project)] += jobs
        for state in pb.JobState.values():
            if state != pb.JOB_STATE_UNSPECIFIED:
                metrics.JOBS.labels(job_states.name(state)).set(by_state[state])
        running: Counter[str] = Counter()
        gpus: Counter[str] = Counter()
        for each in self._runs.values():
            label = self._projects.label(each.place.project)
            running[label] += 1
            gpus[label] += each.place.gpus
        judged: Counter[str] = Counter()
        for project, tokens in judge_tokens.items():
            judged[self._projects.label(project)] += tokens
        for label in self._projects.labels():
            metrics.PROJECT_JOBS.labels(label, "queued").set(queued[label])
            metrics.PROJECT_JOBS.labels(label, "running").set(running[label])
            metrics.PROJECT_GPUS.labels(label).set(gpus[label])
            metrics.PROJECT_JUDGE_TOKENS.labels(label).set(judged[label])
        training = Counter(each.place.trainer_pool for each in self._runs.values())
        for offer in self._trainer_pools.offers():
            name = offer.pool.name
            metrics.TRAINER_POOL_JOBS.labels(name).set(training[name])
            metrics.TRAINER_POOL_PLACES.labels(name).set(offer.max_jobs)
            # After those that train there, so that none who has begun is in neither for a moment.
            if self._trainers_awaited is not None:
                metrics.TRAINER_POOL_WAITING.labels(name).set(self._trainers_awaited[name])

    async def _admit(self, ledger: LeaderLedger) -> None:
        """Starts the queued jobs that may run, and says what the others wait for."""
        queued = [
            job
            for job in await ledger.in_states([pb.JOB_STATE_QUEUED])
            # One that is queued anew while its former run ends waits for that.
            if job.id not in self._runs
        ]
        if not queued:
            metrics.show_queue([])
            self._trainers_awaited = Counter()
            return
        self._pools.refresh(self.wake)
        self._trainer_pools.refresh(self.wake)
        places = [running.place for running in self._runs.values()]
        spent = await self._spent(ledger)
        trainers = await self._trainer_places(ledger)
        offers = self._pools.offers()
        queue = AdmissionQueue(self._limits, self._projects, offers, places, spent, trainers)
        still: list[tuple[JobRecord, Wait]] = []
        for job in queued:
            found = queue.assign(job, self._gpus_of(job))
            if isinstance(found, Wait):
                still.append((job, found))
                continue
            shared = found.trainer_pool.name if found.trainer_pool is not None else ""
            if await ledger.start(job.id, found.pool.name, shared):
                begun = replace(job, progress_ns=now_ns(), trainer_pool=shared)
                queue.take(self._begin(begun, found.pool, ledger).place)
        told, self._trainers_awaited = awaited(queue, still, self._gpus_of)
        metrics.show_queue(
            (self._projects.label(project_of(job.spec)), wait.reason, job.queued_ns)
            for job, wait in told
        )
        await ledger.keep_waiting({job.id: wait for job, wait in told if wait != job.wait})

    def _gpus_of(self, job: JobRecord) -> int:
        """Of its trainer, where it has one of its own."""
        return self._peers.trainers.gpus(job.spec.trainer)

    async def _spent(self, ledger: LeaderLedger) -> dict[str, Wait]:
        """Of projects that have used what they may, what their jobs wait for."""
        budgets = self._projects.with_budgets()
        used = await use_of(budgets, ledger.usage.of_projects)
        told = {name: budgets[name].exhausted(name, each) for name, each in used.items()}
        return {name: wait for name, wait in told.items() if wait is not None}

    async def _trainer_places(self, ledger: LeaderLedger) -> TrainerPlaces:
        """What there is of trainers, before any job has taken a place."""
        offers, strangers = self._trainer_pools.offers(), {}
        for offer in offers:
            # Of its own that are over, a trainer that could not be told is told when it is opened.
            there = offer.state.open_jobs - self._runs.keys() if offer.state is not None else ()
            states = {job_id: await ledger.state_of(job_id) for job_id in sorted(there)}
            unknown = (job_id for job_id, state in states.items() if state is None)
            strangers[offer.pool.name] = frozenset(unknown)
        return TrainerPlaces(offers, self._peers.trainers.own, strangers)

    def _with_own_trainers(self, active: Sequence[JobRecord]) -> set[str]:
        """Jobs whose own trainers are to stay."""
        runs = {job_id for job_id, run in self._runs.items() if not run.place.trainer_pool}
        return runs | {job.id for job in active if not job.trainer_pool}

    def _misplaced(self, job: JobRecord) -> str:
        """Why a job cannot go on where it ran, for people; empty where it can."""
        if self._pools.get(job.pool) is None:
            gone = f"the pool {job.pool!r} is gone from the settings"
            return gone if job.pool else "its pool is not known"
        if job.trainer_pool and self._trainer_pools.get(job.trainer_pool) is None:
            return f"the trainer pool {job.trainer_pool!r} is gone from the settings"
        if not job.trainer_pool and self._peers.trainers.own == 0:
            return "there are no trainers any more but those of the trainer pools"
        return ""

    async def _steer(self, job: JobRecord, ledger: LeaderLedger) -> None:
        running = self._runs.get(job.id)
        if running is None:
            pool = self._pools.get(job.pool)
            why = self._misplaced(job)
            if pool is None or why:
                # It is queued again, and placed anew.
                text = f"{why}; the job is placed anew"
                await ledger.add_event(job.id, pb.EVENT_TYPE_WARNING, text)
                await ledger.settle(job.id, pb.JOB_STATE_PAUSED)
                return
            # A former run ended with its controller; this one goes on from what it stored.
            running = self._begin(job, pool, ledger)
        if job.state == pb.JOB_STATE_CANCELLING:
            running.control.cancel.set()
        elif job.state == pb.JOB_STATE_PAUSING:
            running.control.pause.set()
        else:
            running.control.pause.clear()

    def _begin(self, job: JobRecord, pool: Pool, ledger: LeaderLedger) -> _Running:
        control = StopSignals()
        limits = self._projects.of(project_of(job.spec))
        seconds = self._settings.close_seconds
        shared = self._trainer_pools.get(job.trainer_pool) if job.trainer_pool else None
        gpus = self._gpus_of(job)
        # The record may be of before it was placed.
        label = self._projects.label(project_of(job.spec))
        job = replace(job, pool=pool.name)
        meter = self._meter.begin(job, pool, label, gpus, shared)
        wanted = job.spec.distillation.pool
        teacher_pool = self._pools.get(wanted) if wanted else pool
        run = JobRun(
            job,
            self._peers,
            pool,
            ledger,
            control,
            limits,
            meter,
            seconds,
            label,
            self._project_accounts,
            teacher_pool,
        )
        task = asyncio.create_task(run.run(), name=f"job-{job.id}")
        task.add_done_callback(lambda _: self.wake())
        running = _Running(control, task, _place(job, pool, 0 if shared else gpus))
        self._runs[job.id] = running
        logger.info("job run begins", extra={"job": job.id, "completed_steps": job.completed_steps})
        return running


def _place(job: JobRecord, pool: Pool, gpus: int) -> Place:
    project, holds = project_of(job.spec), holds_of(job.spec)
    return Place(job.id, pool.name, project, gpus, job.trainer_pool, holds)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.error("a run ended with an error; it begins again", exc_info=task.exception())
