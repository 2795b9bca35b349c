"""Which clients of jobs live: a lease each, which they keep renewing."""

from __future__ import annotations

from podium.core.errors import FailedPreconditionError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_controller.domain import job_states
from podium_controller.domain.notifications import Notifications
from podium_controller.domain.waits import PLACES
from podium_controller.store.batches import IDLE, check_client
from podium_controller.store.clock import database_seconds
from podium_controller.store.database import Database
from podium_controller.store.rows import job_message, live_job, move
from podium_controller.store.tables import jobs, leases


class ClientStore:
    """Heartbeats of clients. Every method can raise DatabaseUnavailableError."""

    def __init__(self, database: Database, notifications: Notifications) -> None:
        self._database = database
        self._notifications = notifications

    async def beat(self, job_id: str, client: str, seconds: float) -> pb.Job:
        """The client lives, and is taken to be gone after so many seconds without a word.

        A job that paused because it was gone is queued again.

        Raises:
            NotFoundError: there is no such job.
            FailedPreconditionError: it has no client, or has ended.
        """
        async with self._database.write() as connection:
            row = await live_job(connection, job_id, lock=True)
            check_client(job_id, spec_pb2.JobSpec.FromString(row.spec))
            if row.state in job_states.ENDED:
                raise FailedPreconditionError(
                    f"job {job_id} is {job_states.name(row.state)}", reason="JOB_ENDED"
                )
            back = await client_is_gone(connection, row.number)
            await _renew(connection, row.number, client, seconds)
            idle = row.state == pb.JOB_STATE_PAUSED and row.phase == IDLE
            if back and seconds and idle:
                await move(connection, row, pb.JOB_STATE_QUEUED, message="its client is back")
                row = await live_job(connection, job_id)
        self._notifications.notify(job_id)
        return job_message(row)


async def client_is_gone(connection: AsyncConnection, number: int) -> bool:
    """Whether a job's client, by the row's number, has said that it lives and lives no more."""
    query = select(leases.c.expires <= database_seconds()).where(leases.c.name == _name(number))
    return bool((await connection.execute(query)).scalar_one_or_none())


async def holds_for_nobody(connection: AsyncConnection, number: int) -> bool:
    """Whether a job's client is gone and another job waits for a place that it may hold."""
    if not await client_is_gone(connection, number):
        return False
    query = select(jobs.c.number).where(
        jobs.c.state == pb.JOB_STATE_QUEUED,
        jobs.c.deleted.is_(False),
        jobs.c.wait_reason.in_(PLACES),
    )
    return (await connection.execute(query.limit(1))).first() is not None


async def _renew(connection: AsyncConnection, number: int, client: str, seconds: float) -> None:
    lease = {"holder": client, "expires": database_seconds() + seconds}
    renewed = await connection.execute(
        update(leases).where(leases.c.name == _name(number)).values(lease)
    )
    if not renewed.rowcount:
        await connection.execute(insert(leases).values(name=_name(number), epoch=1, **lease))


def _name(number: int) -> str:
    return f"client/{number}"
