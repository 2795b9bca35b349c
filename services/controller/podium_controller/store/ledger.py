"""What the loop writes: fenced by the controller's lease, one transaction each."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from podium.core.errors import InternalError, NotFoundError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from sqlalchemy import Row, bindparam, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_controller.domain import job_states
from podium_controller.domain.coach import CoachEvent
from podium_controller.domain.errors import DatabaseUnavailableError
from podium_controller.domain.notifications import Notifications
from podium_controller.domain.ports import (
    CONSUMED,
    JUDGED,
    GroupKey,
    JobRecord,
    Past,
    StoredGroup,
    Submission,
)
from podium_controller.domain.taken import Drawn
from podium_controller.domain.usage import of_judges, of_step
from podium_controller.domain.waits import NOTHING, Wait
from podium_controller.store.batches import IDLE, submitted
from podium_controller.store.clients import holds_for_nobody
from podium_controller.store.database import Database
from podium_controller.store.draws import drawn_of, take
from podium_controller.store.groups import forget_group, groups_of, store_group
from podium_controller.store.judge_usage import (
    add_usage,
    project_tokens,
    tokens_by_project,
    usage_of,
)
from podium_controller.store.leases import check_fence
from podium_controller.store.past import past_of
from podium_controller.store.rows import add_event, live_job, locked, move, record, step_rate
from podium_controller.store.tables import evaluations, groups, jobs, steps
from podium_controller.store.trajectories import TrajectoryStore
from podium_controller.store.usage import UsageBook, count_usage

# How soon a batch is noticed that another replica took.
_POLL_SECONDS = 1.0


class SqlLedger:
    """Implements `ports.Ledger`, and what the scheduler needs besides."""

    def __init__(self, database: Database, notifications: Notifications, epoch: int) -> None:
        """`epoch` is the fencing token of the lease under which it writes."""
        self._database = database
        self._notifications = notifications
        self._epoch = epoch
        self.trajectories = TrajectoryStore(database, self._write)
        self.usage = UsageBook(database, self._write, epoch)

    async def in_states(self, wanted: Sequence[job_states.State]) -> list[JobRecord]:
        """Jobs in these states, in the order in which they were queued."""
        query = (
            select(jobs)
            .where(jobs.c.state.in_(wanted), jobs.c.deleted.is_(False))
            .order_by(jobs.c.queue_time, jobs.c.number)
        )
        async with self._database.read() as connection:
            return [record(row) for row in (await connection.execute(query)).all()]

    async def start(self, job_id: str, pool: str, trainer_pool: str = "") -> bool:
        """See `ports.LeaderLedger`."""
        async with self._write() as connection:
            row = await _locked(connection, job_id)
            if row.state != pb.JOB_STATE_QUEUED:
                return False
            await move(connection, row, pb.JOB_STATE_RUNNING)
            placed = update(jobs).where(jobs.c.id == job_id)
            await connection.execute(placed.values(pool=pool, trainer_pool=trainer_pool))
        self._notifications.notify(job_id)
        return True

    async def keep_waiting(self, waits: Mapping[str, Wait]) -> None:
        """Says what queued jobs wait for, by their ids."""
        if not waits:
            return
        # Of a long line all may change at once, and other writers wait for this.
        query = (
            update(jobs)
            .where(jobs.c.id == bindparam("job"), jobs.c.state == pb.JOB_STATE_QUEUED)
            .values(wait_reason=bindparam("reason"), wait_message=bindparam("message"))
        )
        told = [
            {"job": job_id, "reason": wait.reason, "message": wait.message}
            for job_id, wait in waits.items()
        ]
        async with self._write() as connection:
            await connection.execute(query, told)

    async def settle(
        self, job_id: str, outcome: job_states.State, *, reason: str = "", message: str = ""
    ) -> job_states.State:
        """Ends a run; returns the state that the job has then.

        Raises:
            FailedPreconditionError: it was not running.
        """
        async with self._write() as connection:
            row = await _locked(connection, job_id)
            # What people asked for while it ran may change what it comes to.
            target = job_states.after_run(row.state, outcome)
            failed = target == pb.JOB_STATE_FAILED
            await move(
                connection,
                row,
                target,
                reason=reason if failed else "",
                message=message if failed else "",
            )
        self._notifications.notify(job_id)
        return target

    async def rest(
        self, job_id: str, why: Wait = NOTHING, budget: spec_pb2.BudgetSpec | None = None
    ) -> job_states.State:
        """Pauses a job whose client is silent; with a batch, or its end, it is queued again.

        Or, with `why`, one that has used the `budget`; with another one it is queued again.

        Raises:
            FailedPreconditionError: it was not running.
        """
        async with self._write() as connection:
            row = await _locked(connection, job_id)
            if row.state == pb.JOB_STATE_RUNNING and budget is not None:
                same = spec_pb2.JobSpec.FromString(row.spec).budget == budget
                target = pb.JOB_STATE_PAUSED if same else pb.JOB_STATE_QUEUED
            elif row.state == pb.JOB_STATE_RUNNING:
                news = row.finishing or await submitted(connection, row.id, row.completed_steps + 1)
                target = pb.JOB_STATE_QUEUED if news else pb.JOB_STATE_PAUSED
            else:
                target = job_states.after_run(row.state, pb.JOB_STATE_PAUSED)
            paused = target == pb.JOB_STATE_PAUSED
            idle = paused and row.state == pb.JOB_STATE_RUNNING and not why.reason
            message = why.message if paused else ""
            await move(connection, row, target, message=message, phase=IDLE if idle else "wait")
            if paused:
                waits = {"wait_reason": why.reason, "wait_message": why.message}
                await connection.execute(update(jobs).where(jobs.c.id == job_id).values(waits))
        self._notifications.notify(job_id)
        return target

    async def await_submission(self, job_id: str, step: int, seconds: float) -> Submission:
        """See `ports.Ledger`."""
        until = time.monotonic() + seconds
        while True:
            # Before it looks, or it would sleep through what comes in between.
            ticket = self._notifications.ticket(job_id)
            async with self._database.read() as connection:
                row = await live_job(connection, job_id)
                sent = await submitted(connection, job_id, step)
                gone = await holds_for_nobody(connection, row.number)
            if sent or row.finishing or gone or (left := until - time.monotonic()) <= 0:
                return Submission(sent, row.finishing, gone)
            await self._notifications.wait(ticket, min(left, _POLL_SECONDS))

    async def set_phase(self, job_id: str, phase: str) -> None:
        """See `ports.Ledger`."""
        async with self._write() as connection:
            await connection.execute(update(jobs).where(jobs.c.id == job_id).values(phase=phase))

    async def set_wait(self, job_id: str, reason: str, message: str) -> None:
        """See `ports.Ledger`."""
        async with self._write() as connection:
            await connection.execute(
                update(jobs)
                .where(jobs.c.id == job_id)
                .values(wait_reason=reason, wait_message=message)
            )

    async def add_event(
        self, job_id: str, kind: pb.EventType.ValueType, message: str, step: int = 0
    ) -> None:
        """See `ports.Ledger`."""
        async with self._write() as connection:
            await add_event(connection, job_id, kind, message, step=step)
        self._notifications.notify(job_id)

    async def stored_groups(self, job_id: str, step: int, mode: str = "") -> dict[int, StoredGroup]:
        """See `ports.Ledger`."""
        async with self._database.read() as connection:
            return await groups_of(connection, job_id, step, mode)

    async def save_group(self, key: GroupKey, status: str, group: trajectory_pb2.Group) -> None:
        """See `ports.Ledger`."""
        try:
            async with self._write() as connection:
                await store_group(connection, key, status, group)
        except IntegrityError as error:
            # One that is repeated meets the first, whose connection broke as it was committed.
            raise DatabaseUnavailableError("the group was being written already") from error

    async def save_judged(
        self,
        key: GroupKey,
        group: trajectory_pb2.Group,
        usage: judge_pb.JudgeUsage,
        month: str,
    ) -> None:
        """See `ports.Ledger`."""
        async with self._write() as connection:
            # The first two groups of a month would both add its row; and with the group in the
            # same transaction, no crash bills its judges twice or not at all.
            await _locked(connection, key.job_id)
            await store_group(connection, key, JUDGED, group)
            await add_usage(connection, key.job_id, month, usage)
            await count_usage(connection, key.job_id, of_judges(usage))

    async def judge_usage(self, job_id: str) -> judge_pb.JudgeUsage:
        """See `ports.Ledger`."""
        async with self._database.read() as connection:
            return await usage_of(connection, job_id)

    async def project_judge_tokens(self, project: str, month: str) -> int:
        """See `ports.Ledger`."""
        async with self._database.read() as connection:
            return await project_tokens(connection, project, month)

    async def judge_tokens(self, month: str) -> dict[str, int]:
        """Tokens that judges have used in a month, by project."""
        async with self._database.read() as connection:
            return await tokens_by_project(connection, month)

    async def drop_group(self, key: GroupKey) -> None:
        """See `ports.Ledger`."""
        async with self._write() as connection:
            await forget_group(connection, key)

    async def drawn(self, job_id: str) -> Drawn | None:
        """See `ports.Ledger`."""
        async with self._database.read() as connection:
            return await drawn_of(connection, job_id)

    async def take_groups(
        self, job_id: str, groups: Sequence[trajectory_pb2.Group], drawn: Drawn, *, last: bool
    ) -> None:
        """See `ports.Ledger`."""
        async with self._write() as connection:
            row = await _locked(connection, job_id)
            await take(connection, row, groups, drawn, last=last)

    async def commit_step(
        self, job_id: str, step: pb.Step, coach_events: Sequence[CoachEvent] = ()
    ) -> bool:
        """See `ports.Ledger`.

        The step's row, its groups' status, the job's counters and the events
        become visible together or not at all.
        """
        async with self._write() as connection:
            row = await _locked(connection, job_id)
            # Committed before, and the one who did it died without knowing.
            if step.number <= row.completed_steps:
                return False
            # A gap would be a version that no row tells of: better to stop than to go on.
            if step.number != row.completed_steps + 1:
                raise InternalError(
                    f"job {job_id} has {row.completed_steps} steps; step {step.number} cannot"
                    " be its next"
                )
            await connection.execute(
                insert(steps).values(
                    job_id=job_id,
                    number=step.number,
                    commit_time=step.commit_time.ToNanoseconds(),
                    body=step.SerializeToString(),
                )
            )
            await connection.execute(
                # By id: what was collected ahead for later steps is still to be trained on.
                update(groups).where(groups.c.id.in_(step.group_ids)).values(status=CONSUMED)
            )
            await connection.execute(
                update(jobs)
                .where(jobs.c.id == job_id)
                .values(
                    completed_steps=step.number,
                    latest_step=step.SerializeToString(),
                    step_seconds=await step_rate(connection, job_id, step),
                )
            )
            await count_usage(connection, job_id, of_step(step))
            await add_event(
                connection,
                job_id,
                pb.EVENT_TYPE_STEP,
                f"step {step.number} is committed",
                step=step.number,
            )
            for each in coach_events:
                await add_event(connection, job_id, each.kind, each.message, step=step.number)
        self._notifications.notify(job_id)
        return True

    async def past(self, job_id: str, steps: int) -> Past:
        """See `ports.Ledger`."""
        async with self._database.read() as connection:
            return await past_of(connection, job_id, steps)

    async def commit_evaluation(self, job_id: str, evaluation: pb.Evaluation) -> None:
        """See `ports.Ledger`."""
        version, mode = evaluation.version, evaluation.mode
        async with self._write() as connection:
            await _locked(connection, job_id)
            known = await connection.execute(
                select(evaluations.c.mode).where(
                    evaluations.c.job_id == job_id,
                    evaluations.c.version == version,
                    evaluations.c.mode == mode,
                )
            )
            # As with steps: the run before this one may have got so far.
            if known.first() is not None:
                return
            await connection.execute(
                insert(evaluations).values(
                    job_id=job_id,
                    version=version,
                    mode=mode,
                    body=evaluation.SerializeToString(),
                )
            )
            await connection.execute(
                update(groups)
                .where(
                    groups.c.job_id == job_id,
                    groups.c.evaluation.is_(True),
                    groups.c.step == version,
                    groups.c.mode == mode,
                )
                .values(status=CONSUMED)
            )
            await add_event(
                connection,
                job_id,
                pb.EVENT_TYPE_EVALUATION,
                f"version {version} is evaluated, {mode}",
                step=version,
                mode=mode,
            )
        self._notifications.notify(job_id)

    async def evaluated_modes(self, job_id: str, version: int) -> set[str]:
        """See `ports.Ledger`."""
        query = select(evaluations.c.mode).where(
            evaluations.c.job_id == job_id, evaluations.c.version == version
        )
        async with self._database.read() as connection:
            return set((await connection.execute(query)).scalars())

    async def state_of(self, job_id: str) -> job_states.State | None:
        """See `ports.Ledger`."""
        async with self._database.read() as connection:
            found = await connection.execute(select(jobs.c.state).where(jobs.c.id == job_id))
            return found.scalar_one_or_none()

    async def counts(self) -> dict[tuple[str, job_states.State], int]:
        """How many jobs of each project are in each state."""
        query = (
            select(jobs.c.project, jobs.c.state, func.count().label("jobs"))
            .where(jobs.c.deleted.is_(False))
            .group_by(jobs.c.project, jobs.c.state)
        )
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
        return {(row.project, row.state): row.jobs for row in rows}

    @asynccontextmanager
    async def _write(self) -> AsyncIterator[AsyncConnection]:
        async with self._database.write() as connection:
            # In the transaction and not before it: a pause of this process in between would let
            # it write under a lease that is another's by then.
            await check_fence(connection, self._epoch)
            yield connection


async def _locked(connection: AsyncConnection, job_id: str) -> Row[Any]:
    row = (await connection.execute(locked(select(jobs).where(jobs.c.id == job_id)))).one_or_none()
    if row is None:
        raise NotFoundError(f"there is no job {job_id!r}", reason="JOB_NOT_FOUND")
    return row
