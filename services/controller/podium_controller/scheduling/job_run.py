"""One run of one job: the loop, what ends it, and what it leaves behind."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import dataclass
from typing import Any

from podium.core.errors import PodiumError
from podium.core.tasks import cancel_and_wait
from podium.jobs.v1 import job_service_pb2 as pb

from podium_controller.domain import job_states, metrics
from podium_controller.domain.accounts import JobMeter
from podium_controller.domain.errors import (
    BudgetSpentError,
    DatabaseUnavailableError,
    JobIdleError,
    LeaseLostError,
    PauseRequestedError,
)
from podium_controller.domain.ports import JobRecord, Peers, RunLedger
from podium_controller.domain.stop_signals import StopSignals
from podium_controller.domain.waits import Wait
from podium_controller.pools.pools import Pool
from podium_controller.pools.projects import ProjectLimits
from podium_controller.training.judge_spending import ProjectAccounts
from podium_controller.training.loop import TrainingLoop
from podium_controller.training.patient_ledger import PatientLedger

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _End:
    """How the loop ended."""

    outcome: job_states.State
    reason: str = ""
    message: str = ""
    idle: bool = False
    spent: bool = False
    """Whether the job's budget, or its project's, is used up."""


class JobRun:
    """Runs a job until it ends, pauses, or another controller is to run it."""

    def __init__(
        self,
        job: JobRecord,
        peers: Peers,
        pool: Pool,
        ledger: RunLedger,
        control: StopSignals,
        limits: ProjectLimits,
        meter: JobMeter,
        close_seconds: float,
        project: str,
        project_accounts: ProjectAccounts,
        teacher_pool: Pool | None = None,
    ) -> None:
        """`close_seconds` bounds each call that frees trainer and pool.

        `limits` are those of the job's project, and `project` is what metrics call it.
        `project_accounts` are of all jobs that this controller runs. `teacher_pool` serves its
        teacher; None where it has none, or the settings name it no more.
        """
        self._job = job
        self._peers = peers
        self._pool = pool
        self._trainer = peers.trainers.of(job)
        self._ledger = ledger
        self._control = control
        self._limits = limits
        self._meter = meter
        self._close_seconds = close_seconds
        self._project = project
        self._project_accounts = project_accounts
        self._teacher_pool = teacher_pool

    async def run(self) -> None:
        """Returns when the job's new state is written, or must be left to a later run.

        Cancelling it leaves the job as it is: it goes on with the next run.
        """
        spec = self._job.spec
        metrics.begin_job(
            self._job.id, self._job.completed_steps, spec.training.steps, self._job.progress_ns
        )
        try:
            await self._run()
        finally:
            # Whoever runs it next shows them again: two that do would contradict each other.
            metrics.forget_job(self._job.id)

    async def _run(self) -> None:
        try:
            end = await self._loop()
            await self._free(end)
            # Before anybody is told of the end: what it has used is all there then.
            await self._meter.close()
            if end.idle:
                state = await self._ledger.rest(self._job.id)
            elif end.spent:
                why = Wait(end.reason, end.message)
                state = await self._ledger.rest(self._job.id, why, self._job.spec.budget)
            else:
                state = await self._ledger.settle(
                    self._job.id, end.outcome, reason=end.reason, message=end.message
                )
        except (DatabaseUnavailableError, LeaseLostError) as error:
            logger.warning(
                "the job is left for a later run",
                extra={"job": self._job.id, "reason": error.reason},
            )
            return
        finally:
            await self._meter.close()
        if state in job_states.ENDED:
            reason = end.reason if state == pb.JOB_STATE_FAILED else ""
            metrics.job_ended(self._project, job_states.name(state), reason)
        logger.info("job run ended", extra={"job": self._job.id, "state": job_states.name(state)})

    async def _loop(self) -> _End:
        ledger = PatientLedger(self._ledger, self._control)
        loop = TrainingLoop(
            self._job,
            self._peers,
            self._pool,
            self._trainer,
            ledger,
            self._control,
            self._limits,
            self._meter,
            self._project_accounts,
            self._teacher_pool,
        )
        work = asyncio.create_task(loop.run())
        cancelled = asyncio.create_task(self._control.cancel.wait())
        try:
            end = await self._ended(loop, ledger, work, cancelled)
            if end.outcome != pb.JOB_STATE_SUCCEEDED:
                await self._keep_state(loop)
            return end
        finally:
            ledger.give_up()
            await cancel_and_wait(work, cancelled)
            await loop.close()

    async def _ended(
        self,
        loop: TrainingLoop,
        ledger: PatientLedger,
        work: asyncio.Task[None],
        cancelled: asyncio.Task[Any],
    ) -> _End:
        try:
            await asyncio.wait((work, cancelled), return_when=asyncio.FIRST_COMPLETED)
            if self._control.cancel.is_set():
                ledger.give_up()
                await cancel_and_wait(work)
                await self._adopt_last(loop)
                return _End(pb.JOB_STATE_CANCELLED)
            await work
        except PauseRequestedError:
            return _End(pb.JOB_STATE_PAUSED)
        except BudgetSpentError as error:
            return _End(pb.JOB_STATE_PAUSED, error.reason, str(error), spent=True)
        except JobIdleError:
            return _End(pb.JOB_STATE_PAUSED, idle=True)
        except (DatabaseUnavailableError, LeaseLostError):
            raise
        except PodiumError as error:
            logger.warning(
                "the job failed",
                exc_info=error,
                extra={"job": self._job.id, "reason": error.reason},
            )
            return _End(pb.JOB_STATE_FAILED, error.reason, error.message)
        except Exception as error:
            error_id = uuid.uuid4().hex[:12]
            logger.error(
                "uncaught exception in a job",
                exc_info=error,
                extra={"job": self._job.id, "error_id": error_id},
            )
            return _End(
                pb.JOB_STATE_FAILED,
                "INTERNAL",
                f"internal error; the controller's log has it under error id {error_id}",
            )
        return _End(pb.JOB_STATE_SUCCEEDED)

    async def _keep_state(self, loop: TrainingLoop) -> None:
        """Stores the state before the trainer is freed, so that no step is taken twice later."""
        try:
            await loop.keep_state()
        except PodiumError as error:
            # It goes on all the same, from older state and the stored groups.
            logger.info(
                "the last step's state is not stored",
                extra={"job": self._job.id, "reason": error.reason, "error": error.message},
            )

    async def _adopt_last(self, loop: TrainingLoop) -> None:
        """Counts a step that was published just before the job was stopped."""
        try:
            async with asyncio.timeout(self._close_seconds):
                await loop.adopt()
        except (TimeoutError, PodiumError, PauseRequestedError) as error:
            if isinstance(error, DatabaseUnavailableError | LeaseLostError):
                raise
            logger.info("could not look for a last step", extra={"job": self._job.id})

    async def _free(self, end: _End) -> None:
        """Frees trainer, environment and pool.

        A job that succeeded stays loaded, to be talked to, and one whose client is silent, to
        be sampled from; whoever needs the pool takes it.
        """
        calls = [
            self._trainer.close(self._job.id, self._close_seconds),
            self._peers.environments.close(self._job.id, self._close_seconds),
        ]
        if end.outcome != pb.JOB_STATE_SUCCEEDED and not end.idle:
            calls.append(self._pool.inference.unload(self._job.id, self._close_seconds))
        for result in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(result, Exception):
                # Whoever needs them next takes them back: Optimizer.open, Serving.reload.
                logger.warning(
                    "could not give a service back",
                    extra={"job": self._job.id, "error": str(result)},
                )
