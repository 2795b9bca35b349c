"""A job from its spec to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from podium.core.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    PodiumError,
)
from podium.core.specs.sources import JobSource
from podium.jobs.v1 import job_service_pb2 as pb
from podium.sdk.checkpoints import Checkpoints
from podium.sdk.following import Follower, followed
from podium.sdk.jobs import Jobs


@dataclass(frozen=True)
class JobRun:
    """A job that was submitted, and what it has come to."""

    job: pb.Job
    """As it was read last; `job.spec` has every default filled in."""
    evaluations: tuple[pb.Evaluation, ...] = ()
    """Of its versions, oldest first, as far as they were followed."""
    best_version: int | None = None
    """The version with the alias `best`; None where none has it, or no registry is known."""

    @property
    def id(self) -> str:
        """The job's id: the model's name in the registry, and the policy's."""
        return self.job.id

    @property
    def metrics(self) -> Mapping[str, float]:
        """The last committed step's numbers, such as `reward_mean`; empty before the first."""
        return dict(self.job.latest_metrics)


async def run_job(
    jobs: Jobs,
    checkpoints: Checkpoints,
    spec: JobSource,
    *,
    job_id: str = "",
    follow: bool = True,
    progress: bool = True,
    within: float | None = None,
) -> JobRun:
    """Submits a job and follows it; what `AsyncClient.train` says."""
    job = await jobs.create(spec, job_id=job_id)
    if not follow:
        return JobRun(job)
    evaluations: list[pb.Evaluation] = []
    with ExitStack() as shown:
        follower = shown.enter_context(followed(f"training {job.id}")) if progress else Follower()
        try:
            async with asyncio.timeout(within):
                updates = jobs.watch(job.id, on_reconnect=lambda error, _: follower.say(str(error)))
                async for update in updates:
                    follower.update(update)
                    if update.event.type == pb.EVENT_TYPE_EVALUATION:
                        evaluations.append(update.evaluation)
                job = await jobs.get(job.id)
        except TimeoutError:
            raise DeadlineExceededError(
                f"job {job.id} has not ended after {within:g} seconds; it goes on",
                reason="WAIT_TIMEOUT",
                metadata={"job_id": job.id},
            ) from None
        except (asyncio.CancelledError, PodiumError):
            follower.say(f"job {job.id} is no longer followed; it goes on")
            raise
    if job.state != pb.JOB_STATE_SUCCEEDED:
        raise _ended_badly(job)
    return JobRun(job, tuple(evaluations), await _best(checkpoints, job.id))


def _ended_badly(job: pb.Job) -> FailedPreconditionError:
    cancelled = job.state == pb.JOB_STATE_CANCELLED
    why = f": {job.failure_message}" if job.failure_message else ""
    return FailedPreconditionError(
        f"job {job.id} {'was cancelled' if cancelled else 'failed'}{why}",
        reason="JOB_CANCELLED" if cancelled else "JOB_FAILED",
        metadata={"job_id": job.id, "failure_reason": job.failure_reason},
    )


async def _best(checkpoints: Checkpoints, job_id: str) -> int | None:
    try:
        return (await checkpoints.get(job_id, "best")).manifest.version
    except PodiumError:
        # The training is done, whatever the registry says.
        return None
