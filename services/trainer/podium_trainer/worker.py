"""The open jobs, driven from asyncio: of one job one call at a time, of all one that computes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from podium.core.errors import RequestCancelledError
from podium.kit.telemetry import exemplar
from podium.types.v1 import trajectory_pb2

from podium_trainer.adapters.team import Team
from podium_trainer.adapters.versions import CheckpointStore, Provenance, PublishedVersion
from podium_trainer.computing import Computing
from podium_trainer.domain import metrics
from podium_trainer.domain.sharing import SlotClaim
from podium_trainer.learner.checkpoint import Checkpoint, Saving
from podium_trainer.learner.session import JobConfig, Session, StepOutcome
from podium_trainer.shielded import ShieldedTasks
from podium_trainer.slots import JobSlots, OpenJob, check_step

logger = logging.getLogger(__name__)

T = TypeVar("T")
Begun = Callable[[], Awaitable[None]]
"""Called when a job's step begins, after the calls of others that it waited for."""

_LAST_WORDS_SECONDS = 0.5


async def _nobody() -> None:
    return None


class Worker:
    """Open, step, save and close.

    What was begun is ended even when its caller goes away, so that a job is always
    either before a call or after it; only a step's gradient is given up halfway.
    """

    def __init__(
        self, versions: CheckpointStore, team: Team, *, threads: int = 0, max_jobs: int = 1
    ) -> None:
        """`threads` of one matrix product; 0 for one a core. `max_jobs` may be open at once."""
        self._versions = versions
        self._team = team
        self._slots = JobSlots(versions, max_jobs)
        self._computing = Computing(threads)
        self._calls = ShieldedTasks()
        self._stopping = asyncio.Event()

    @property
    def max_jobs(self) -> int:
        """How many may be open at once."""
        return self._slots.max_jobs

    @property
    def held(self) -> list[SlotClaim]:
        """Of the jobs that hold a slot, in the order in which they were opened."""
        return self._slots.claims

    async def open(
        self, config: JobConfig, resume_version: int | None, project: str = "default"
    ) -> Session:
        """See the proto file.

        Raises:
            ResourceExhaustedError: TRAINER_BUSY, what is open leaves no room for it.
            NotFoundError: no such version, or no such base model.
            InvalidArgumentError: the specification cannot be trained.
            DataLossError: the version is damaged.
        """
        return await self._calls.run(self._open(config, resume_version, project))

    def expect(self, job_id: str, step: int) -> None:
        """Whether `step` is the next one of the job.

        Raises:
            FailedPreconditionError: JOB_NOT_OPEN or WRONG_STEP.
        """
        check_step(self._slots.step(job_id) + 1, step, "the next step is")

    async def step(
        self,
        job_id: str,
        step: int,
        groups: Sequence[trajectory_pb2.Group],
        begun: Begun = _nobody,
    ) -> StepOutcome:
        """Takes step `step`; cancelled before the weights move, takes none.

        Raises:
            FailedPreconditionError: JOB_NOT_OPEN or WRONG_STEP.
            InvalidArgumentError: a token record contradicts itself.
        """
        cancelled = asyncio.Event()
        try:
            return await self._calls.run(self._step(job_id, step, groups, cancelled, begun))
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def save(
        self,
        job_id: str,
        step: int,
        group_ids: Sequence[str],
        numbers: Mapping[str, float],
        saving: Saving = Saving.WITH,
    ) -> PublishedVersion:
        """Publishes the weights of step `step`, once, and their state as `saving` says.

        Raises:
            FailedPreconditionError: JOB_NOT_OPEN or WRONG_STEP.
            PodiumError: what the registry refused it with.
        """
        return await self._calls.run(self._save(job_id, step, group_ids, numbers, saving))

    async def save_state(self, job_id: str, step: int) -> None:
        """Returns when the registry has the state of a version that is published.

        Raises:
            FailedPreconditionError: JOB_NOT_OPEN; WRONG_STEP: that state is not at hand.
            PodiumError: what the registry refused it with.
        """
        await self._calls.run(self._save_state(job_id, step))

    async def close(self, job_id: str) -> None:
        """Frees the job's slot, if it holds one."""
        await self._calls.run(self._close(job_id))

    async def stow_idle(self, seconds: float) -> None:
        """Frees the sessions of jobs that had no call for so long; their next call has them back.

        Only what the registry has goes: a step that is not published yet stays.
        """
        for job in self._slots.jobs:
            if time.monotonic() - job.used >= seconds and not job.calls.locked():
                try:
                    await self._calls.run(self._stow(job))
                except Exception:
                    # It stays as it is, and is tried again; the others are looked at all the same.
                    logger.warning("idle job stays", exc_info=True, extra={"job_id": job.id})

    async def stop(self) -> None:
        """Gives up running steps and waits for the threads."""
        self._stopping.set()
        await self._calls.ended()
        await self._slots.settled()
        # The others may be gone already; then there is nobody to tell.
        with contextlib.suppress(RuntimeError):
            await self._compute(self._team.stop)
        await asyncio.to_thread(self._computing.stop)

    async def _open(self, config: JobConfig, resume_version: int | None, project: str) -> Session:
        while True:
            job = await self._slots.take(self._team.claim(config))
            async with job.calls:
                # Unless it was closed, or could not be opened, while this call waited.
                if self._slots.get(config.job_id) is job:
                    self._count_for(job, project)
                    return await self._open_in(job, config, resume_version)

    def _count_for(self, job: OpenJob, project: str) -> None:
        if job.project != project:
            self._computing.lock.forget(job.project, job.id)
            job.project = project

    async def _open_in(
        self, job: OpenJob, config: JobConfig, resume_version: int | None
    ) -> Session:
        session = job.session
        if session is not None and session.config == config and job.is_at(resume_version):
            return session
        try:
            # First, since memory may not hold two models; a fetch that fails leaves nothing open.
            await self._release(job)
            session = await self._make(job, config, resume_version)
        except BaseException:
            self._forget(job)
            raise
        finally:
            await self._slots.tell()
        metrics.opened(job.id, session.step)
        logger.info("job opened", extra={"job_id": job.id, "step": session.step})
        return session

    async def _make(self, job: OpenJob, config: JobConfig, version: int | None) -> Session:
        checkpoint, published = None, None
        if version is not None:
            checkpoint, published = await self._versions.fetch(job.id, version)
        async with self._computing.make_live(job.project, job.id, None, self._stopping):
            session = await self._compute(lambda: self._team.open(config, checkpoint))
            self._computing.made(session)
        job.opened(session, published, version)
        return session

    @asynccontextmanager
    async def _call(self, job_id: str) -> AsyncIterator[tuple[OpenJob, Session]]:
        """The job to itself, with its session, which comes back if it was stowed."""
        async with self._slots.call(job_id) as job:
            session, stowed = job.session, job.stowed
            if stowed is not None:
                session = await self._make(job, stowed.config, stowed.version)
                self._slots.count()
                logger.info("idle job is back", extra={"job_id": job_id, "step": session.step})
            assert session is not None
            yield job, session

    async def _step(
        self,
        job_id: str,
        step: int,
        groups: Sequence[trajectory_pb2.Group],
        cancelled: asyncio.Event,
        begun: Begun,
    ) -> StepOutcome:
        async with self._call(job_id) as (job, session):
            self.expect(job_id, step)

            def given_up() -> bool:
                return cancelled.is_set() or self._stopping.is_set()

            try:
                async with self._computing.make_live(job.project, job.id, session, cancelled):
                    await begun()
                    outcome = await self._compute(
                        lambda: self._team.train(session, groups, given_up)
                    )
            except Exception as error:
                cancel = isinstance(error, RequestCancelledError)
                metrics.STEPS.labels("cancelled" if cancel else "failed").inc()
                if session.torn and not self._team.broken_by(error):
                    # Nothing that was published is like it: who goes on opens the job again.
                    await self._leave(job)
                raise
            # The weights have moved: no version is known to hold them.
            job.published = None
            job.metrics = outcome.metrics
            metrics.stepped(job_id, outcome.step, outcome.metrics, outcome.seconds, outcome.batch)
            return outcome

    async def _save(
        self,
        job_id: str,
        step: int,
        group_ids: Sequence[str],
        numbers: Mapping[str, float],
        saving: Saving,
    ) -> PublishedVersion:
        # One after another, so that a version's parent is published before it; but what was
        # copied needs no weights any more, and the next step may be taken meanwhile.
        storing = self._slots.storing(job_id)
        async with storing.saving:
            start = time.perf_counter()
            async with self._call(job_id) as (job, session):
                check_step(session.step, step, "the weights are at step")
                # Its reply was lost, or the controller begins anew: the same version again.
                if job.published is not None:
                    if saving is Saving.BEHIND:
                        await self._copy_state(job, session)
                    return job.published
                # Within the call: the next step writes numbers of its own there.
                measured, parent = {**job.metrics, **numbers}, job.parent
                if saving is Saving.BEHIND:
                    # Memory holds one copy.
                    await storing.keeper.settled()
                checkpoint = await self._copy(job, session, saving)
            try:
                published = await self._versions.publish(
                    job_id,
                    checkpoint,
                    Provenance(
                        base_model=session.config.base_model,
                        parent=parent,
                        group_ids=group_ids,
                        metrics=measured,
                    ),
                    with_state=saving is Saving.WITH,
                )
            except BaseException:
                metrics.CHECKPOINT_FAILURES.inc()
                raise
            finally:
                # Also of weights that are refused: the other processes store their parts, and a
                # version of the same step taken before has no state maybe.
                if saving is Saving.BEHIND:
                    storing.keeper.begin(job_id, checkpoint)
            metrics.CHECKPOINT_SECONDS.observe(time.perf_counter() - start, exemplar())
            metrics.CHECKPOINT_BYTES.set(published.total_bytes)
            # While it was uploaded the job may have been closed, or opened at another version, and
            # what this one is then has nothing to do with it.
            if job.session is session:
                if saving is Saving.WITH:
                    storing.keeper.stored(step)
                job.parent = published.version
                # Or a step was taken, whose weights are in no version yet.
                if session.step == step:
                    job.published = published
            return published

    async def _save_state(self, job_id: str, step: int) -> None:
        storing = self._slots.storing(job_id)
        keeper = storing.keeper
        async with storing.keeping:
            self._slots.step(job_id)
            if not keeper.has(step):
                async with self._call(job_id) as (job, session):
                    check_step(session.step, step, "the weights are at step")
                    await self._copy_state(job, session)
            if keeper.holds(step):
                await keeper.wait(lambda: self._compute(self._team.store_state))

    async def _copy_state(self, job: OpenJob, session: Session) -> None:
        """Begins to store the state of the current step, whose weights are published."""
        keeper = job.storing.keeper
        if keeper.has(session.step):
            return
        await keeper.settled()
        keeper.begin(job.id, await self._copy(job, session, Saving.STATE))

    async def _copy(self, job: OpenJob, session: Session, saving: Saving) -> Checkpoint:
        copied = self._computing.copy(
            session, lambda: self._team.checkpoint(session, job.parent, saving)
        )
        return await self._watched(copied)

    async def _close(self, job_id: str) -> None:
        job = self._slots.get(job_id)
        if job is None:
            return
        job.is_closing = True
        async with job.calls:
            if self._slots.get(job_id) is job:
                await self._leave(job)
                logger.info("job closed", extra={"job_id": job_id})

    async def _stow(self, job: OpenJob) -> None:
        session, published = job.session, job.published
        # Whole weights have a trainer alone, and are gigabytes to fetch.
        if session is None or published is None or job.claim.whole:
            return
        await self._save_state(job.id, published.version)
        async with job.calls:
            # Unless a call came meanwhile that changed it.
            if (
                self._slots.get(job.id) is job
                and job.session is session
                and job.published is published
                and job.storing.keeper.is_stored(published.version)
            ):
                job.stow(session.config)
                await self._watched(self._computing.free(session, self._team.close))
                self._slots.count()
                logger.info("idle job stowed", extra={"job_id": job.id, "step": published.version})

    async def _leave(self, job: OpenJob) -> None:
        await self._release(job)
        self._forget(job)
        await self._slots.tell()

    async def _release(self, job: OpenJob) -> None:
        """Frees the session; the job keeps its slot."""
        if job.session is not None:
            metrics.closed(job.id)
            await self._watched(self._computing.free(job.session, self._team.close))
        job.released()
        if len(self._slots) == 1:
            self._team.drop_base()

    def _forget(self, job: OpenJob) -> None:
        """Frees the slot."""
        self._slots.free(job)
        self._computing.lock.forget(job.project, job.id)
        if not self._slots:
            self._team.drop_base()

    async def _compute(self, work: Callable[[], T]) -> T:
        return await self._watched(self._computing.run(work))

    async def _watched(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except Exception as error:
            if self._team.broken_by(error) and not self._stopping.is_set():
                logger.exception("this trainer cannot go on; ending all of its processes")
                # After the caller has its answer.
                asyncio.get_running_loop().call_later(_LAST_WORDS_SECONDS, os._exit, 1)
            raise
