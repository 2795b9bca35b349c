"""`podium_controller.store.BatchStore` and `ClientStore` in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from podium.core.errors import AlreadyExistsError, FailedPreconditionError
from podium.core.sft import are_demonstrations
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain import job_states
from podium_controller.domain.notifications import Notifications
from podium_controller.domain.ports import COLLECTED
from podium_controller.domain.usage import of_groups
from podium_controller.store.batches import IDLE, NewBatch, check_client
from podium_controller.store.rows import job_message
from support.fakes.database import (
    BatchRow,
    GroupRow,
    JobRow,
    Lease,
    MemoryDatabase,
    client_lease,
    move,
)
from support.fakes.usage import count_usage


class MemoryBatchStore:
    """See `podium_controller.store.BatchStore`."""

    def __init__(self, database: MemoryDatabase, notifications: Notifications) -> None:
        self._database = database
        self._notifications = notifications

    async def submit(
        self,
        new: NewBatch,
        groups_for: Callable[[spec_pb2.JobSpec, int], Sequence[trajectory_pb2.Group]],
    ) -> int:
        def work() -> int:
            row = self._database.job(new.job_id)
            spec = spec_pb2.JobSpec.FromString(row.spec)
            check_client(new.job_id, spec)
            for batch in row.batches.values():
                if batch.request_id == new.request_id:
                    return _same(batch, new)
            step = _next_step(row, spec, new.step)
            made = groups_for(spec, step)
            row.batches[step] = BatchRow(step, new.request_id, new.digest, len(made))
            for position, group in enumerate(made):
                body = group.SerializeToString()
                row.groups[group.id] = GroupRow(step, "", position, COLLECTED, body)
            if not are_demonstrations(spec, made):
                count_usage(row, of_groups(made))
            if row.state == pb.JOB_STATE_PAUSED and row.phase == IDLE:
                move(row, pb.JOB_STATE_QUEUED)
            return step

        step: int = await self._database.transact(work)
        self._notifications.notify(new.job_id)
        return step

    async def finish(self, job_id: str) -> pb.Job:
        def work() -> pb.Job:
            row = self._database.job(job_id)
            check_client(job_id, spec_pb2.JobSpec.FromString(row.spec))
            if row.state in job_states.ENDED and row.state != pb.JOB_STATE_SUCCEEDED:
                raise _ended(row)
            if row.state not in job_states.ENDED:
                row.finishing = True
            if row.state == pb.JOB_STATE_PAUSED:
                move(row, pb.JOB_STATE_QUEUED)
            return job_message(row)  # type: ignore[arg-type]

        job: pb.Job = await self._database.transact(work)
        self._notifications.notify(job_id)
        return job


class MemoryClientStore:
    """See `podium_controller.store.ClientStore`."""

    def __init__(self, database: MemoryDatabase, notifications: Notifications) -> None:
        self._database = database
        self._notifications = notifications

    async def beat(self, job_id: str, client: str, seconds: float) -> pb.Job:
        def work() -> pb.Job:
            row = self._database.job(job_id)
            check_client(job_id, spec_pb2.JobSpec.FromString(row.spec))
            if row.state in job_states.ENDED:
                raise FailedPreconditionError(
                    f"job {job_id} is {job_states.name(row.state)}", reason="JOB_ENDED"
                )
            back = self._database.client_is_gone(row)
            expires = self._database.clock() + seconds
            self._database.leases[client_lease(row)] = Lease(client, 1, expires)
            if back and seconds and row.state == pb.JOB_STATE_PAUSED and row.phase == IDLE:
                move(row, pb.JOB_STATE_QUEUED, message="its client is back")
            return job_message(row)  # type: ignore[arg-type]

        job: pb.Job = await self._database.transact(work)
        self._notifications.notify(job_id)
        return job


def _same(batch: BatchRow, new: NewBatch) -> int:
    if batch.digest != new.digest:
        raise AlreadyExistsError(
            f"request_id {new.request_id!r} was used for step {batch.step} with other groups",
            reason="REQUEST_ID_REUSED",
        )
    return batch.step


def _next_step(row: JobRow, spec: spec_pb2.JobSpec, expected: int) -> int:
    if row.state in job_states.ENDED or row.state == pb.JOB_STATE_CANCELLING:
        raise _ended(row)
    if row.finishing:
        raise FailedPreconditionError(f"job {row.id} is being finished", reason="JOB_FINISHING")
    step = max([*row.batches, row.completed_steps]) + 1
    if expected and expected != step:
        raise FailedPreconditionError(
            f"the next batch of job {row.id} is for step {step}, not {expected}",
            reason="WRONG_STEP",
            metadata={"step": str(step)},
        )
    if step > spec.training.steps:
        raise FailedPreconditionError(
            f"job {row.id} has batches for all its {spec.training.steps} steps",
            reason="NO_STEP_LEFT",
        )
    if step > row.completed_steps + 1 + spec.rollout.max_staleness:
        raise FailedPreconditionError(
            f"job {row.id} has {row.completed_steps} steps and a batch for step {step - 1}",
            reason="BATCH_PENDING",
            metadata={"step": str(step - 1)},
        )
    return step


def _ended(row: JobRow) -> FailedPreconditionError:
    name = job_states.name(row.state)
    return FailedPreconditionError(
        f"job {row.id} is {name}; it trains no more", reason="JOB_ENDED", metadata={"state": name}
    )
