"""What the API reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from podium.core.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    NotFoundError,
    OutOfRangeError,
)
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from sqlalchemy import Row, delete, func, insert, select, tuple_, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_controller.domain import job_states
from podium_controller.domain.identifiers import WAITING_ROOM
from podium_controller.domain.notifications import Notifications
from podium_controller.domain.timestamps import now_ns
from podium_controller.domain.trajectory_page import Cursor
from podium_controller.pools.projects import project_of
from podium_controller.store.database import Database
from podium_controller.store.rows import (
    add_event,
    event_message,
    job_message,
    live_job,
    locked,
    move,
    no_job,
    update_of,
)
from podium_controller.store.tables import (
    batches,
    draws,
    evaluations,
    events,
    groups,
    jobs,
    requests,
    steps,
    trajectory_sums,
)
from podium_controller.store.trajectories import deleted_of, page_of
from podium_controller.store.usage import totals


@dataclass(frozen=True)
class NewJob:
    """A job to create. `digest` is of the request's body, for its idempotency."""

    id: str
    spec: spec_pb2.JobSpec
    request_id: str
    digest: str
    trace_parent: str
    warnings: Sequence[str] = ()


class JobStore:
    """Jobs and their histories. Every method can raise DatabaseUnavailableError."""

    def __init__(self, database: Database, notifications: Notifications) -> None:
        self._database = database
        self._notifications = notifications

    async def find_request(self, request_id: str, digest: str) -> pb.Job | None:
        """The job that a request made before; None for a new request.

        Raises:
            AlreadyExistsError: it had another body, or its job was deleted.
        """
        if not request_id:
            return None
        async with self._database.read() as connection:
            return await _replay(connection, request_id, digest)

    async def is_taken(self, job_id: str) -> bool:
        """Whether a job has, or had, this id."""
        async with self._database.read() as connection:
            found = await connection.execute(select(jobs.c.id).where(jobs.c.id == job_id))
            return found.first() is not None

    async def create(self, new: NewJob) -> pb.Job:
        """Queues a job; the same request again returns the job made before.

        Raises:
            AlreadyExistsError: the id is taken, or the request id was used
                with another body.
        """
        try:
            async with self._database.write() as connection:
                made = await _replay(connection, new.request_id, new.digest)
                if made is None:
                    made = await _insert(connection, new)
        except IntegrityError:
            # On PostgreSQL two may get this far; the second waits for the first and ends here.
            earlier = await self.find_request(new.request_id, new.digest)
            if earlier is not None:
                return earlier
            raise AlreadyExistsError(
                f"a job with the id {new.id!r} exists, or existed",
                reason="JOB_EXISTS",
                metadata={"job_id": new.id},
            ) from None
        self._notifications.notify(new.id)
        return made

    async def get(self, job_id: str) -> pb.Job:
        """Reads a job.

        Raises:
            NotFoundError: there is none.
        """
        async with self._database.read() as connection:
            job = job_message(await live_job(connection, job_id))
            job.usage.CopyFrom((await totals(connection, [job_id]))[job_id])
            return job

    async def groups_collected(self, job_id: str, step: int) -> int:
        """How many groups of a training step are stored, or wait for a step to take them."""
        query = select(func.count()).where(
            groups.c.job_id == job_id,
            groups.c.evaluation.is_(False),
            groups.c.step.in_((WAITING_ROOM, step)),
        )
        async with self._database.read() as connection:
            return int((await connection.execute(query)).scalar_one())

    async def page(
        self,
        wanted: Sequence[job_states.State],
        before: int | None,
        limit: int,
        *,
        project: str = "",
    ) -> tuple[list[pb.Job], int | None]:
        """Jobs, newest first, below a number; and where the next page begins.

        Args:
            wanted: their states; none for all.
            project: empty for all.
        """
        query = select(jobs).where(jobs.c.deleted.is_(False))
        if project:
            query = query.where(jobs.c.project == project)
        if wanted:
            query = query.where(jobs.c.state.in_(wanted))
        if before is not None:
            query = query.where(jobs.c.number < before)
        query = query.order_by(jobs.c.number.desc()).limit(limit + 1)
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
            found = [job_message(row) for row in rows[:limit]]
            used = await totals(connection, [job.id for job in found])
        for job in found:
            job.usage.CopyFrom(used[job.id])
        return found, rows[limit - 1].number if len(rows) > limit else None

    async def request(
        self,
        job_id: str,
        after: Callable[[job_states.State], job_states.State],
        budget: spec_pb2.BudgetSpec | None = None,
    ) -> pb.Job:
        """Moves a job to the state that `after` gives for its current one; None for no new budget.

        Raises:
            NotFoundError: there is no such job.
            FailedPreconditionError: what `after` raises.
        """
        async with self._database.write() as connection:
            row = await live_job(connection, job_id, lock=True)
            target = after(row.state)
            if budget is not None:
                spec = spec_pb2.JobSpec.FromString(row.spec)
                spec.budget.CopyFrom(budget)
                body = spec.SerializeToString(deterministic=True)
                await connection.execute(update(jobs).where(jobs.c.id == job_id).values(spec=body))
                row = await live_job(connection, job_id)
            if target != row.state:
                await move(connection, row, target)
                row = await live_job(connection, job_id)
        self._notifications.notify(job_id)
        return job_message(row)

    async def delete(self, job_id: str) -> None:
        """Deletes what a job has left here; idempotent.

        Raises:
            NotFoundError: there never was such a job.
            FailedPreconditionError: it has not ended.
        """
        async with self._database.write() as connection:
            row = (
                await connection.execute(locked(select(jobs).where(jobs.c.id == job_id)))
            ).one_or_none()
            if row is None:
                raise no_job(job_id)
            if row.state not in job_states.ENDED:
                raise FailedPreconditionError(
                    f"job {job_id} is {job_states.name(row.state)}; cancel it first",
                    reason="JOB_NOT_ENDED",
                    metadata={"job_id": job_id, "state": job_states.name(row.state)},
                )
            # Sums before groups, as who makes room does.
            for table in (trajectory_sums, groups, draws, batches, evaluations, steps, events):
                await connection.execute(delete(table).where(table.c.job_id == job_id))
            await connection.execute(update(jobs).where(jobs.c.id == job_id).values(deleted=True))
        self._notifications.notify(job_id)

    async def events(self, job_id: str, after: int, limit: int) -> tuple[list[pb.Event], bool]:
        """Events after a sequence number, and whether there are more.

        Raises:
            NotFoundError: there is no such job.
        """
        async with self._database.read() as connection:
            await live_job(connection, job_id)
            rows = await _events(connection, job_id, after, limit + 1)
        return [event_message(row) for row in rows[:limit]], len(rows) > limit

    async def updates(
        self, job_id: str, after: int, limit: int
    ) -> tuple[list[pb.WatchJobResponse], bool]:
        """The same with what each event is about, and whether the last one ends the job.

        Raises:
            NotFoundError: there is no such job.
            OutOfRangeError: the job has not come to that sequence yet.
        """
        async with self._database.read() as connection:
            row = await live_job(connection, job_id)
            if after > row.last_sequence:
                raise OutOfRangeError(
                    f"after_sequence is {after}; the last event of job {job_id} is"
                    f" {row.last_sequence}",
                    reason="SEQUENCE_IN_FUTURE",
                    metadata={"job_id": job_id, "last_sequence": str(row.last_sequence)},
                )
            rows = await _events(connection, job_id, after, limit)
            job = job_message(row)
            found = [await update_of(connection, job, each) for each in rows]
        last = rows[-1].sequence if rows else after
        return found, row.state in job_states.ENDED and last >= row.last_sequence

    async def steps(self, job_id: str, after: int, limit: int) -> tuple[list[pb.Step], bool]:
        """Committed steps after a number, and whether there are more.

        Raises:
            NotFoundError: there is no such job.
        """
        query = (
            select(steps.c.body)
            .where(steps.c.job_id == job_id, steps.c.number > after)
            .order_by(steps.c.number)
            .limit(limit + 1)
        )
        async with self._database.read() as connection:
            await live_job(connection, job_id)
            bodies = (await connection.execute(query)).scalars().all()
        return [pb.Step.FromString(body) for body in bodies[:limit]], len(bodies) > limit

    async def evaluations(
        self, job_id: str, after: tuple[int, str] | None, limit: int
    ) -> tuple[list[pb.Evaluation], bool]:
        """Evaluations after a version and mode, and whether there are more.

        Raises:
            NotFoundError: there is no such job.
        """
        key = tuple_(evaluations.c.version, evaluations.c.mode)
        query = select(evaluations.c.body).where(evaluations.c.job_id == job_id)
        if after is not None:
            query = query.where(key > after)
        query = query.order_by(evaluations.c.version, evaluations.c.mode).limit(limit + 1)
        async with self._database.read() as connection:
            await live_job(connection, job_id)
            bodies = (await connection.execute(query)).scalars().all()
        return [pb.Evaluation.FromString(body) for body in bodies[:limit]], len(bodies) > limit

    async def trajectories(
        self,
        job_id: str,
        *,
        evaluation: bool,
        step: int | None,
        after: Cursor | None,
        limit: int,
        max_bytes: int,
    ) -> tuple[list[trajectory_pb2.Trajectory], Cursor | None]:
        """Trajectories by step, group and attempt; and where the next page begins after.

        Args:
            max_bytes: a page ends before it grows beyond this, but holds one at least.

        Raises:
            NotFoundError: there is no such job.
        """
        async with self._database.read() as connection:
            await live_job(connection, job_id)
            return await page_of(
                connection,
                job_id,
                evaluation=evaluation,
                step=step,
                after=after,
                limit=limit,
                max_bytes=max_bytes,
            )

    async def deleted_trajectories(
        self, job_id: str, *, evaluation: bool, step: int | None
    ) -> list[pb.DeletedTrajectories]:
        """What of a job's trajectories was deleted to make room.

        Raises:
            NotFoundError: there is no such job.
        """
        async with self._database.read() as connection:
            await live_job(connection, job_id)
            return await deleted_of(connection, job_id, evaluation, step)


async def _replay(connection: AsyncConnection, request_id: str, digest: str) -> pb.Job | None:
    if not request_id:
        return None
    found = (
        await connection.execute(select(requests).where(requests.c.request_id == request_id))
    ).one_or_none()
    if found is None:
        return None
    if found.digest != digest:
        raise AlreadyExistsError(
            f"request_id {request_id!r} was used with another body",
            reason="REQUEST_ID_REUSED",
            metadata={"request_id": request_id, "job_id": found.job_id},
        )
    try:
        return job_message(await live_job(connection, found.job_id))
    except NotFoundError:
        raise AlreadyExistsError(
            f"request_id {request_id!r} made the job {found.job_id}, which was deleted",
            reason="JOB_DELETED",
            metadata={"request_id": request_id, "job_id": found.job_id},
        ) from None


async def _insert(connection: AsyncConnection, new: NewJob) -> pb.Job:
    now = now_ns()
    await connection.execute(
        insert(jobs).values(
            id=new.id,
            spec=new.spec.SerializeToString(deterministic=True),
            project=project_of(new.spec),
            state=pb.JOB_STATE_QUEUED,
            phase="wait",
            completed_steps=new.spec.fork.version,
            create_time=now,
            queue_time=now,
            failure_reason="",
            failure_message="",
            last_sequence=0,
            trace_parent=new.trace_parent,
            finishing=False,
            deleted=False,
        )
    )
    if new.request_id:
        await connection.execute(
            insert(requests).values(request_id=new.request_id, digest=new.digest, job_id=new.id)
        )
    await add_event(connection, new.id, pb.EVENT_TYPE_STATE, "the job is queued")
    for warning in new.warnings:
        await add_event(connection, new.id, pb.EVENT_TYPE_WARNING, warning)
    return job_message(await live_job(connection, new.id))


async def _events(
    connection: AsyncConnection, job_id: str, after: int, limit: int
) -> Sequence[Row[Any]]:
    query = (
        select(events)
        .where(events.c.job_id == job_id, events.c.sequence > after)
        .order_by(events.c.sequence)
        .limit(limit)
    )
    return (await connection.execute(query)).all()
