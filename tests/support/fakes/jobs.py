"""`podium_controller.store.JobStore` in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from podium.core.errors import AlreadyExistsError, FailedPreconditionError, OutOfRangeError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain import job_states
from podium_controller.domain.identifiers import WAITING_ROOM
from podium_controller.domain.notifications import Notifications
from podium_controller.domain.timestamps import now_ns
from podium_controller.domain.trajectory_page import Cursor, TrajectoryPage
from podium_controller.pools.projects import project_of
from podium_controller.store.jobs import NewJob
from podium_controller.store.rows import event_message, job_message
from podium_controller.store.trajectories import runs_of
from support.fakes.database import EventRow, JobRow, MemoryDatabase, add_event, move
from support.fakes.usage import total


class MemoryJobStore:
    """See `podium_controller.store.JobStore`."""

    def __init__(self, database: MemoryDatabase, notifications: Notifications) -> None:
        self._database = database
        self._notifications = notifications

    async def find_request(self, request_id: str, digest: str) -> pb.Job | None:
        return await self._database.transact(lambda: self._replay(request_id, digest))

    async def is_taken(self, job_id: str) -> bool:
        return await self._database.transact(lambda: job_id in self._database.jobs)

    async def create(self, new: NewJob) -> pb.Job:
        made: pb.Job = await self._database.transact(lambda: self._create(new))
        self._notifications.notify(new.id)
        return made

    async def get(self, job_id: str) -> pb.Job:
        return await self._database.transact(lambda: _with_usage(self._database.job(job_id)))

    async def groups_collected(self, job_id: str, step: int) -> int:
        def work() -> int:
            row = self._database.jobs.get(job_id)
            groups = row.groups.values() if row else ()
            return sum(each.step in (WAITING_ROOM, step) and not each.mode for each in groups)

        return await self._database.transact(work)

    async def page(
        self,
        wanted: Sequence[job_states.State],
        before: int | None,
        limit: int,
        *,
        project: str = "",
    ) -> tuple[list[pb.Job], int | None]:
        def work() -> tuple[list[pb.Job], int | None]:
            rows = [
                row
                for row in reversed(self._database.jobs.values())
                if not row.deleted
                and (not project or row.project == project)
                and (not wanted or row.state in wanted)
                and (before is None or row.number < before)
            ]
            page = rows[:limit]
            more = len(rows) > limit
            return [_with_usage(row) for row in page], page[-1].number if more else None

        return await self._database.transact(work)

    async def request(
        self,
        job_id: str,
        after: Callable[[job_states.State], job_states.State],
        budget: spec_pb2.BudgetSpec | None = None,
    ) -> pb.Job:
        def work() -> pb.Job:
            row = self._database.job(job_id)
            target = after(row.state)
            if budget is not None:
                spec = spec_pb2.JobSpec.FromString(row.spec)
                spec.budget.CopyFrom(budget)
                row.spec = spec.SerializeToString(deterministic=True)
            if target != row.state:
                move(row, target)
            return _message(row)

        job: pb.Job = await self._database.transact(work)
        self._notifications.notify(job_id)
        return job

    async def delete(self, job_id: str) -> None:
        def work() -> None:
            row = self._database.any_job(job_id)
            if row.state not in job_states.ENDED:
                raise FailedPreconditionError(
                    f"job {job_id} is {job_states.name(row.state)}; cancel it first",
                    reason="JOB_NOT_ENDED",
                )
            for rows in (
                row.deleted_groups,
                row.groups,
                row.batches,
                row.evaluations,
                row.steps,
                row.events,
            ):
                rows.clear()
            row.drawn = None
            row.deleted = True

        await self._database.transact(work)
        self._notifications.notify(job_id)

    async def events(self, job_id: str, after: int, limit: int) -> tuple[list[pb.Event], bool]:
        def work() -> tuple[list[pb.Event], bool]:
            rows = self._database.job(job_id).events[after:]
            return [_event(row) for row in rows[:limit]], len(rows) > limit

        return await self._database.transact(work)

    async def updates(
        self, job_id: str, after: int, limit: int
    ) -> tuple[list[pb.WatchJobResponse], bool]:
        def work() -> tuple[list[pb.WatchJobResponse], bool]:
            row = self._database.job(job_id)
            if after > row.last_sequence:
                raise OutOfRangeError(
                    f"after_sequence is {after}; the last event is {row.last_sequence}",
                    reason="SEQUENCE_IN_FUTURE",
                )
            rows = row.events[after : after + limit]
            last = rows[-1].sequence if rows else after
            over = row.state in job_states.ENDED and last >= row.last_sequence
            return [_update(row, each) for each in rows], over

        return await self._database.transact(work)

    async def steps(self, job_id: str, after: int, limit: int) -> tuple[list[pb.Step], bool]:
        def work() -> tuple[list[pb.Step], bool]:
            steps = self._database.job(job_id).steps
            found = [steps[number][1] for number in sorted(steps) if number > after]
            return [pb.Step.FromString(body) for body in found[:limit]], len(found) > limit

        return await self._database.transact(work)

    async def evaluations(
        self, job_id: str, after: tuple[int, str] | None, limit: int
    ) -> tuple[list[pb.Evaluation], bool]:
        def work() -> tuple[list[pb.Evaluation], bool]:
            rows = self._database.job(job_id).evaluations
            found = [rows[key] for key in sorted(rows) if after is None or key > after]
            return [pb.Evaluation.FromString(body) for body in found[:limit]], len(found) > limit

        return await self._database.transact(work)

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
        def work() -> tuple[list[trajectory_pb2.Trajectory], Cursor | None]:
            gone = self._database.job(job_id).deleted_groups
            rows = [
                row
                for row in self._database.job(job_id).groups.values()
                if bool(row.mode) == evaluation
                and (step is None or row.step == step)
                and (step is not None or evaluation or row.step != WAITING_ROOM)
                and (row.mode, row.step) not in gone
            ]
            page = TrajectoryPage(job_id, after, limit, max_bytes)
            for row in sorted(rows, key=lambda row: (row.step, row.mode, row.position)):
                if not page.add((row.step, row.mode, row.position), row.body):
                    break
            return page.trajectories, page.last

        return await self._database.transact(work)

    async def deleted_trajectories(
        self, job_id: str, *, evaluation: bool, step: int | None
    ) -> list[pb.DeletedTrajectories]:
        def work() -> list[pb.DeletedTrajectories]:
            return runs_of(
                [
                    (number, mode, each.groups, each.delete_time)
                    for (mode, number), each in self._database.job(job_id).deleted_groups.items()
                    if bool(mode) == evaluation and (step is None or number == step)
                ]
            )

        return await self._database.transact(work)

    def _create(self, new: NewJob) -> pb.Job:
        made = self._replay(new.request_id, new.digest)
        if made is not None:
            return made
        if new.id in self._database.jobs:
            raise AlreadyExistsError(
                f"a job with the id {new.id!r} exists, or existed", reason="JOB_EXISTS"
            )
        now = now_ns()
        row = self._database.jobs[new.id] = JobRow(
            number=len(self._database.jobs) + 1,
            id=new.id,
            spec=new.spec.SerializeToString(deterministic=True),
            project=project_of(new.spec),
            trace_parent=new.trace_parent,
            completed_steps=new.spec.fork.version,
            create_time=now,
            queue_time=now,
        )
        if new.request_id:
            self._database.requests[new.request_id] = (new.digest, new.id)
        add_event(row, pb.EVENT_TYPE_STATE, "the job is queued")
        for warning in new.warnings:
            add_event(row, pb.EVENT_TYPE_WARNING, warning)
        return _message(row)

    def _replay(self, request_id: str, digest: str) -> pb.Job | None:
        if request_id not in self._database.requests:
            return None
        used, job_id = self._database.requests[request_id]
        row = self._database.jobs[job_id]
        if used == digest and not row.deleted:
            return _message(row)
        raise AlreadyExistsError(
            f"request_id {request_id!r} was used before",
            reason="JOB_DELETED" if used == digest else "REQUEST_ID_REUSED",
        )


def _message(row: JobRow) -> pb.Job:
    return job_message(row)  # type: ignore[arg-type]


def _with_usage(row: JobRow) -> pb.Job:
    job = _message(row)
    job.usage.CopyFrom(total(row))
    return job


def _event(row: EventRow) -> pb.Event:
    return event_message(row)  # type: ignore[arg-type]


def _update(job: JobRow, row: EventRow) -> pb.WatchJobResponse:
    update = pb.WatchJobResponse(event=_event(row), job=_message(job))
    if row.type == pb.EVENT_TYPE_STEP:
        update.step.ParseFromString(job.steps[row.step][1])
    elif row.type == pb.EVENT_TYPE_EVALUATION:
        update.evaluation.ParseFromString(job.evaluations[row.step, row.mode or ""])
    return update
