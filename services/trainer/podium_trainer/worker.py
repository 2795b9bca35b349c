"""The one open job, driven from asyncio: calls take turns, computing has its own thread."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from podium.core.errors import (
    FailedPreconditionError,
    RequestCancelledError,
    ResourceExhaustedError,
)
from podium.kit.telemetry import exemplar
from podium.types.v1 import trajectory_pb2

from podium_trainer.adapters.state_keeper import StateKeeper
from podium_trainer.adapters.team import Team
from podium_trainer.adapters.versions import Provenance, Published, Versions
from podium_trainer.domain import metrics
from podium_trainer.learner.checkpoint import Saving
from podium_trainer.learner.session import JobConfig, Session, StepOutcome

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LAST_WORDS_SECONDS = 0.5


class Worker:
    """Open, step, save and close, one at a time.

    What was begun is ended even when its caller goes away, so that the job is always
    either before a call or after it; only a step's gradient is given up halfway.
    """

    def __init__(self, versions: Versions, team: Team, *, threads: int = 0) -> None:
        """`threads` of one matrix product; 0 for one a core."""
        self._versions = versions
        self._team = team
        self._turn = asyncio.Lock()
        self._saving = asyncio.Lock()
        self._keeping = asyncio.Lock()
        self._keeper = StateKeeper(versions)
        self._executor = ThreadPoolExecutor(1, "compute", initializer=lambda: _use(threads))
        self._running: set[asyncio.Task[Any]] = set()
        self._stopping = threading.Event()
        self._session: Session | None = None
        self._published: Published | None = None
        """The version that the session's state is known to be in the registry as."""
        self._parent: int | None = None
        """The version that the job was last at."""
        self._metrics: Mapping[str, float] = {}
        """Of the step that the weights are at."""

    @property
    def held(self) -> JobConfig | None:
        """The open job."""
        return self._session.config if self._session is not None else None

    async def open(self, config: JobConfig, resume_version: int | None) -> Session:
        """See the proto file.

        Raises:
            ResourceExhaustedError: TRAINER_BUSY, another job is open.
            NotFoundError: no such version, or no such base model.
            InvalidArgumentError: the specification cannot be trained.
            DataLossError: the version is damaged.
        """
        return await self._to_the_end(self._open(config, resume_version))

    def expect(self, job_id: str, step: int) -> None:
        """Whether `step` is the next one of the open job.

        Raises:
            FailedPreconditionError: JOB_NOT_OPEN or WRONG_STEP.
        """
        _check_step(self._opened(job_id).step + 1, step, "the next step is")

    async def step(
        self, job_id: str, step: int, groups: Sequence[trajectory_pb2.Group]
    ) -> StepOutcome:
        """Takes step `step`; cancelled before the weights move, takes none.

        Raises:
            FailedPreconditionError: JOB_NOT_OPEN or WRONG_STEP.
            InvalidArgumentError: a token record contradicts itself.
        """
        cancelled = threading.Event()
        try:
            return await self._to_the_end(self._step(job_id, step, groups, cancelled))
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
    ) -> Published:
        """Publishes the weights of step `step`, once, and their state as `saving` says.

        Raises:
            FailedPreconditionError: JOB_NOT_OPEN or WRONG_STEP.
            PodiumError: what the registry refused it with.
        """
        return await self._to_the_end(self._save(job_id, step, group_ids, numbers, saving))

    async def save_state(self, job_id: str, step: int) -> None:
        """Returns when the registry has the state of a version that is published.

        Raises:
            FailedPreconditionError: JOB_NOT_OPEN; WRONG_STEP: that state is not at hand.
            PodiumError: what the registry refused it with.
        """
        await self._to_the_end(self._save_state(job_id, step))

    async def close(self, job_id: str) -> None:
        """Frees the job, if it is the open one."""
        await self._to_the_end(self._close(job_id))

    async def stop(self) -> None:
        """Gives up a running step and waits for the thread."""
        self._stopping.set()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._keeper.settled()
        # The others may be gone already; then there is nobody to tell.
        with contextlib.suppress(RuntimeError):
            await self._compute_in_thread(self._team.stop)
        await asyncio.to_thread(self._executor.shutdown)

    async def _open(self, config: JobConfig, resume_version: int | None) -> Session:
        async with self._turn:
            session = self._session
            if session is not None and session.config.job_id != config.job_id:
                raise ResourceExhaustedError(
                    f"this trainer has job {session.config.job_id} open",
                    reason="TRAINER_BUSY",
                    metadata={"job_id": session.config.job_id},
                )
            if session is not None and session.config == config and self._is_at(resume_version):
                return session
            # First, since memory may not hold two models; a fetch that fails leaves nothing open.
            await self._release()
            checkpoint, published = None, None
            if resume_version is not None:
                checkpoint, published = await self._versions.fetch(config.job_id, resume_version)

            self._session = await self._compute_in_thread(
                lambda: self._team.open(config, checkpoint)
            )
            self._published, self._parent = published, resume_version
            self._keeper.open(resume_version)
            metrics.opened(config.job_id, self._session.step)
            logger.info("job opened", extra={"job_id": config.job_id, "step": self._session.step})
            return self._session

    async def _step(
        self,
        job_id: str,
        step: int,
        groups: Sequence[trajectory_pb2.Group],
        cancelled: threading.Event,
    ) -> StepOutcome:
        async with self._turn:
            self.expect(job_id, step)
            session = self._opened(job_id)

            def given_up() -> bool:
                return cancelled.is_set() or self._stopping.is_set()

            try:
                outcome = await self._compute_in_thread(
                    lambda: self._team.train(session, groups, given_up)
                )
            except Exception as error:
                cancel = isinstance(error, RequestCancelledError)
                metrics.STEPS.labels("cancelled" if cancel else "failed").inc()
                if session.torn and not self._team.broken_by(error):
                    # Nothing that was published is like it: who goes on opens the job again.
                    await self._release()
                raise
            # The weights have moved: no version is known to hold them.
            self._published = None
            self._metrics = outcome.metrics
            metrics.stepped(job_id, outcome.step, outcome.metrics, outcome.seconds, outcome.batch)
            return outcome

    async def _save(
        self,
        job_id: str,
        step: int,
        group_ids: Sequence[str],
        numbers: Mapping[str, float],
        saving: Saving,
    ) -> Published:
        # One after another, so that a version's parent is published before it; but what was
        # copied needs no weights any more, and the next step may be taken meanwhile.
        async with self._saving:
            start = time.perf_counter()
            async with self._turn:
                session = self._opened(job_id)
                _check_step(session.step, step, "the weights are at step")
                # Its reply was lost, or the controller begins anew: the same version again.
                if self._published is not None:
                    if saving is Saving.BEHIND:
                        await self._copy_state(session)
                    return self._published
                # Within the turn: the next step writes numbers of its own there.
                measured = {**self._metrics, **numbers}
                if saving is Saving.BEHIND:
                    # Memory holds one copy.
                    await self._keeper.settled()
                checkpoint = await self._compute_in_thread(
                    lambda: self._team.checkpoint(session, self._parent, saving)
                )
            try:
                published = await self._versions.publish(
                    job_id,
                    checkpoint,
                    Provenance(
                        base_model=session.config.base_model,
                        parent=self._parent,
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
                    self._keeper.begin(job_id, checkpoint)
            metrics.CHECKPOINT_SECONDS.observe(time.perf_counter() - start, exemplar())
            metrics.CHECKPOINT_BYTES.set(published.total_bytes)
            # While it was uploaded the job may have been closed, or opened at another version, and
            # what this one is then has nothing to do with it.
            if self._session is session:
                if saving is Saving.WITH:
                    self._keeper.stored(step)
                self._parent = published.version
                # Or a step was taken, whose weights are in no version yet.
                if session.step == step:
                    self._published = published
            return published

    async def _save_state(self, job_id: str, step: int) -> None:
        async with self._keeping:
            self._opened(job_id)
            if not self._is_kept(step):
                async with self._turn:
                    session = self._opened(job_id)
                    _check_step(session.step, step, "the weights are at step")
                    await self._copy_state(session)
            if self._keeper.holds(step):
                await self._keeper.wait(lambda: self._compute_in_thread(self._team.store_state))

    async def _copy_state(self, session: Session) -> None:
        """Begins to store the state of the current step, whose weights are published."""
        if self._is_kept(session.step):
            return
        await self._keeper.settled()
        checkpoint = await self._compute_in_thread(
            lambda: self._team.checkpoint(session, self._parent, Saving.STATE)
        )
        self._keeper.begin(session.config.job_id, checkpoint)

    def _is_kept(self, step: int) -> bool:
        return self._keeper.is_stored(step) or self._keeper.holds(step)

    async def _close(self, job_id: str) -> None:
        async with self._turn:
            if self._session is not None and self._session.config.job_id == job_id:
                await self._release()
                logger.info("job closed", extra={"job_id": job_id})

    async def _release(self) -> None:
        if self._session is not None:
            metrics.closed(self._session.config.job_id)
            await self._compute_in_thread(self._team.close)
        self._session = self._published = self._parent = None
        self._metrics = {}
        self._keeper.open(None)

    def _is_at(self, resume_version: int | None) -> bool:
        """Whether the open state is what opening at that version would make.

        A step that was taken but not published is not: its version may be another's.
        """
        if resume_version is None:
            return self._session is not None and self._session.step == 0 and self._parent is None
        return self._published is not None and self._published.version == resume_version

    def _opened(self, job_id: str) -> Session:
        if self._session is None or self._session.config.job_id != job_id:
            raise FailedPreconditionError(
                f"job {job_id} is not open here; open it first",
                reason="JOB_NOT_OPEN",
                metadata={"job_id": job_id},
            )
        return self._session

    async def _compute_in_thread(self, work: Callable[[], T]) -> T:
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, context.run, work)
        except Exception as error:
            if self._team.broken_by(error) and not self._stopping.is_set():
                logger.exception("the processes of this trainer are out of step; ending all")
                # After the caller has its answer.
                loop.call_later(_LAST_WORDS_SECONDS, os._exit, 1)
            raise

    async def _to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for `work`, which goes on when the waiting is cancelled."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        # Read, so that an error nobody waits for any more is not reported as forgotten.
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.debug("call ended with %s", error)


def _use(threads: int) -> None:
    if threads:
        torch.set_num_threads(threads)


def _check_step(expected: int, got: int, what: str) -> None:
    if got != expected:
        raise FailedPreconditionError(
            f"got step {got}; {what} {expected}",
            reason="WRONG_STEP",
            metadata={"step": str(got), "expected_step": str(expected)},
        )
