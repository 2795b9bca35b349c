"""What the clients of jobs submit: any replica takes it, the one with the lease trains it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from podium.core.errors import AlreadyExistsError, FailedPreconditionError
from podium.core.sft import are_demonstrations
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from sqlalchemy import Row, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_controller.domain import job_states
from podium_controller.domain.accounts import StepTrajectories
from podium_controller.domain.notifications import Notifications
from podium_controller.domain.ports import COLLECTED
from podium_controller.domain.usage import of_groups
from podium_controller.store.database import Database
from podium_controller.store.rows import job_message, live_job, move
from podium_controller.store.tables import batches, groups, jobs
from podium_controller.store.trajectories import count_groups
from podium_controller.store.usage import count_usage

IDLE = "idle"
"""The phase of a job that paused because its client sent nothing."""


@dataclass(frozen=True)
class NewBatch:
    """A batch to store. `digest` is of the body, for its idempotency; `step` is 0 for the next."""

    job_id: str
    request_id: str
    digest: str
    step: int = 0


class BatchStore:
    """Batches of client-driven jobs. Every method can raise DatabaseUnavailableError."""

    def __init__(self, database: Database, notifications: Notifications) -> None:
        self._database = database
        self._notifications = notifications

    async def submit(
        self,
        new: NewBatch,
        groups_for: Callable[[spec_pb2.JobSpec, int], Sequence[trajectory_pb2.Group]],
    ) -> int:
        """Stores the next step's groups, which `groups_for` makes; returns the step.

        All of them become visible together. The same batch again is not stored again.

        Raises:
            NotFoundError: there is no such job.
            AlreadyExistsError: the request id was used with another body.
            FailedPreconditionError: as the contract says.
        """
        async with self._database.write() as connection:
            row = await live_job(connection, new.job_id, lock=True)
            spec = spec_pb2.JobSpec.FromString(row.spec)
            check_client(new.job_id, spec)
            step = await _replay(connection, new)
            if step:
                return step
            step = await _next_step(connection, row, spec, new.step)
            made = groups_for(spec, step)
            await connection.execute(
                insert(batches).values(
                    job_id=new.job_id,
                    step=step,
                    request_id=new.request_id,
                    digest=new.digest,
                    groups=len(made),
                )
            )
            await connection.execute(
                insert(groups),
                [
                    {
                        "id": group.id,
                        "job_id": new.job_id,
                        "evaluation": False,
                        "step": step,
                        "mode": "",
                        "position": position,
                        "status": COLLECTED,
                        "body": group.SerializeToString(),
                    }
                    for position, group in enumerate(made)
                ],
            )
            await count_groups(
                connection,
                StepTrajectories(new.job_id, False, step),
                len(made),
                sum(group.ByteSize() for group in made),
            )
            if not are_demonstrations(spec, made):
                # Nobody sampled its rows for it.
                await count_usage(connection, new.job_id, of_groups(made))
            if row.state == pb.JOB_STATE_PAUSED and row.phase == IDLE:
                await move(connection, row, pb.JOB_STATE_QUEUED)
        self._notifications.notify(new.job_id)
        return step

    async def finish(self, job_id: str) -> pb.Job:
        """Has a job end once it has trained what it has; idempotent.

        Raises:
            NotFoundError: there is no such job.
            FailedPreconditionError: it has no client, has failed or was cancelled.
        """
        async with self._database.write() as connection:
            row = await live_job(connection, job_id, lock=True)
            check_client(job_id, spec_pb2.JobSpec.FromString(row.spec))
            if row.state in job_states.ENDED and row.state != pb.JOB_STATE_SUCCEEDED:
                raise _ended(row)
            if row.state not in job_states.ENDED:
                await connection.execute(
                    update(jobs).where(jobs.c.id == job_id).values(finishing=True)
                )
            if row.state == pb.JOB_STATE_PAUSED:
                await move(connection, row, pb.JOB_STATE_QUEUED)
            row = await live_job(connection, job_id)
        self._notifications.notify(job_id)
        return job_message(row)


async def submitted(connection: AsyncConnection, job_id: str, step: int) -> int:
    """How many groups the client's batch for a step has; 0 without one."""
    query = select(batches.c.groups).where(batches.c.job_id == job_id, batches.c.step == step)
    return (await connection.execute(query)).scalar_one_or_none() or 0


def check_client(job_id: str, spec: spec_pb2.JobSpec) -> None:
    """Refuses a job whose groups come from its environment.

    Raises:
        FailedPreconditionError: NOT_CLIENT_DRIVEN.
    """
    if not spec.HasField("client"):
        raise FailedPreconditionError(
            f"the groups of job {job_id} come from its environment; a job takes them from its"
            " client when spec.client is set",
            reason="NOT_CLIENT_DRIVEN",
            metadata={"job_id": job_id},
        )


async def _replay(connection: AsyncConnection, new: NewBatch) -> int:
    """The step that the request made before; 0 for a new request."""
    found = (
        await connection.execute(
            select(batches).where(
                batches.c.job_id == new.job_id, batches.c.request_id == new.request_id
            )
        )
    ).one_or_none()
    if found is None:
        return 0
    if found.digest != new.digest:
        raise AlreadyExistsError(
            f"request_id {new.request_id!r} was used for step {found.step} with other groups",
            reason="REQUEST_ID_REUSED",
            metadata={"request_id": new.request_id, "job_id": new.job_id},
        )
    return int(found.step)


async def _next_step(
    connection: AsyncConnection, row: Row[Any], spec: spec_pb2.JobSpec, expected: int
) -> int:
    if row.state in job_states.ENDED or row.state == pb.JOB_STATE_CANCELLING:
        raise _ended(row)
    if row.finishing:
        raise FailedPreconditionError(
            f"job {row.id} is being finished; it takes no more batches", reason="JOB_FINISHING"
        )
    query = select(func.max(batches.c.step)).where(batches.c.job_id == row.id)
    newest: int | None = (await connection.execute(query)).scalar_one()
    completed: int = row.completed_steps
    step = max(newest or 0, completed) + 1
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
    ahead = spec.rollout.max_staleness
    if step > row.completed_steps + 1 + ahead:
        raise FailedPreconditionError(
            f"job {row.id} has {row.completed_steps} steps and a batch for step {step - 1}; with"
            f" max_staleness {ahead} the next one must wait for it",
            reason="BATCH_PENDING",
            metadata={"step": str(step - 1)},
        )
    return step


def _ended(row: Row[Any]) -> FailedPreconditionError:
    name = job_states.name(row.state)
    return FailedPreconditionError(
        f"job {row.id} is {name}; it trains no more", reason="JOB_ENDED", metadata={"state": name}
    )
