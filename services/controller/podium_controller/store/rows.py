"""Rows as the contract's messages."""

from __future__ import annotations

from typing import Any, TypeVar

from podium.core.errors import NotFoundError
from podium.core.total_steps import total_steps
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from sqlalchemy import Row, Select, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_controller.domain import job_states
from podium_controller.domain.ports import JobRecord
from podium_controller.domain.step_metrics import RATE_STEPS, seconds_per_step
from podium_controller.domain.timestamps import now_ns, timestamp
from podium_controller.domain.waits import Wait
from podium_controller.store.tables import evaluations, events, jobs, steps

_Query = TypeVar("_Query", bound=Select[Any])


async def live_job(connection: AsyncConnection, job_id: str, *, lock: bool = False) -> Row[Any]:
    """A job's row, until the transaction ends for nobody else with `lock`.

    Raises:
        NotFoundError: there is none, or it was deleted.
    """
    query = select(jobs).where(jobs.c.id == job_id, jobs.c.deleted.is_(False))
    row = (await connection.execute(locked(query) if lock else query)).one_or_none()
    if row is None:
        raise no_job(job_id)
    return row


def locked(query: _Query) -> _Query:
    """A query of jobs, whose rows nobody else changes until the transaction ends.

    Rows that refer to a job may still be written: their check of the job's key would wait for a
    stronger lock, and who waits so may hold rows that the holder of the job waits for.
    """
    return query.with_for_update(key_share=True)


def no_job(job_id: str) -> NotFoundError:
    """For whoever asks for a job that is not there."""
    return NotFoundError(
        f"there is no job {job_id!r}", reason="JOB_NOT_FOUND", metadata={"job_id": job_id}
    )


def record(row: Row[Any]) -> JobRecord:
    """A row of `jobs`, for the loop."""
    return JobRecord(
        id=row.id,
        spec=spec_pb2.JobSpec.FromString(row.spec),
        state=row.state,
        completed_steps=row.completed_steps,
        trace_parent=row.trace_parent,
        pool=row.pool,
        trainer_pool=row.trainer_pool,
        wait=Wait(row.wait_reason, row.wait_message),
        queued_ns=row.queue_time,
        progress_ns=_progress_ns(row),
    )


def _progress_ns(row: Row[Any]) -> int:
    times: list[int] = [row.queue_time, row.start_time or 0]
    if row.latest_step is not None:
        times.append(pb.Step.FromString(row.latest_step).commit_time.ToNanoseconds())
    return max(times)


def job_message(row: Row[Any]) -> pb.Job:
    """A row of `jobs`, for clients."""
    job = pb.Job(
        id=row.id,
        spec=spec_pb2.JobSpec.FromString(row.spec),
        state=row.state,
        completed_steps=row.completed_steps,
        phase=row.phase,
        create_time=timestamp(row.create_time),
        failure_message=row.failure_message,
        failure_reason=row.failure_reason,
        wait_message=row.wait_message,
        wait_reason=row.wait_reason,
        pool=row.pool,
        trainer_pool=row.trainer_pool,
    )
    if row.start_time is not None:
        job.start_time.CopyFrom(timestamp(row.start_time))
    if row.end_time is not None:
        job.end_time.CopyFrom(timestamp(row.end_time))
    if row.latest_step is not None:
        step = pb.Step.FromString(row.latest_step)
        job.latest_metrics.update(step.metrics)
        _estimate(job, step, row.step_seconds)
    return job


def _estimate(job: pb.Job, last: pb.Step, step_seconds: float | None) -> None:
    if step_seconds is None or job.state not in (pb.JOB_STATE_RUNNING, pb.JOB_STATE_PAUSING):
        return
    if not (total := total_steps(job.spec)):
        return
    left = step_seconds * (total - job.completed_steps)
    # What the step in progress has already taken, but no more than a step takes.
    begun = (now_ns() - last.commit_time.ToNanoseconds()) / 1e9
    job.remaining_seconds = max(0.0, left - min(max(begun, 0.0), step_seconds))


def event_message(row: Row[Any]) -> pb.Event:
    """A row of `events`."""
    return pb.Event(
        sequence=row.sequence,
        type=row.type,
        time=timestamp(row.time),
        message=row.message,
        step=row.step,
    )


async def update_of(connection: AsyncConnection, job: pb.Job, row: Row[Any]) -> pb.WatchJobResponse:
    """A row of `events` with what it is about."""
    update_ = pb.WatchJobResponse(event=event_message(row), job=job)
    if row.type == pb.EVENT_TYPE_STEP:
        query = select(steps.c.body).where(steps.c.job_id == job.id, steps.c.number == row.step)
        body = (await connection.execute(query)).scalar_one()
        update_.step.CopyFrom(pb.Step.FromString(body))
    elif row.type == pb.EVENT_TYPE_EVALUATION:
        query = select(evaluations.c.body).where(
            evaluations.c.job_id == job.id,
            evaluations.c.version == row.step,
            evaluations.c.mode == row.mode,
        )
        body = (await connection.execute(query)).scalar_one()
        update_.evaluation.CopyFrom(pb.Evaluation.FromString(body))
    return update_


async def add_event(
    connection: AsyncConnection,
    job_id: str,
    kind: pb.EventType.ValueType,
    message: str,
    *,
    step: int = 0,
    mode: str | None = None,
) -> int:
    """Appends an event; the row lock on the job keeps its sequence without gaps."""
    sequence: int = (
        await connection.execute(
            update(jobs)
            .where(jobs.c.id == job_id)
            .values(last_sequence=jobs.c.last_sequence + 1)
            .returning(jobs.c.last_sequence)
        )
    ).scalar_one()
    await connection.execute(
        insert(events).values(
            job_id=job_id,
            sequence=sequence,
            type=kind,
            time=now_ns(),
            message=message,
            step=step,
            mode=mode,
        )
    )
    return sequence


async def move(
    connection: AsyncConnection,
    row: Row[Any],
    target: job_states.State,
    *,
    reason: str = "",
    message: str = "",
    phase: str = "wait",
) -> None:
    """Writes a new state, what follows from it, and the event that tells of it.

    Args:
        phase: of a job that holds nothing then.
    """
    now = now_ns()
    values: dict[str, Any] = {"state": target}
    # A trainer that is waited for stays so while the job is asked to pause.
    if target in job_states.RESTING | job_states.ENDED or row.state == pb.JOB_STATE_QUEUED:
        values |= {"wait_reason": "", "wait_message": ""}
    if target in job_states.RESTING:
        values["phase"] = phase
    if target == pb.JOB_STATE_QUEUED:
        values["queue_time"] = now
    if target == pb.JOB_STATE_RUNNING and row.start_time is None:
        values["start_time"] = now
    if target in job_states.ENDED:
        values |= {"end_time": now, "phase": ""}
    if target == pb.JOB_STATE_FAILED:
        values |= {"failure_reason": reason, "failure_message": message}
    await connection.execute(update(jobs).where(jobs.c.id == row.id).values(values))
    verb = "has" if target in (pb.JOB_STATE_SUCCEEDED, pb.JOB_STATE_FAILED) else "is"
    text = f"the job {verb} {job_states.name(target)}"
    await add_event(
        connection,
        row.id,
        pb.EVENT_TYPE_STATE,
        f"{text}: {message}" if message else text,
        step=row.completed_steps,
    )


async def step_rate(connection: AsyncConnection, job_id: str, step: pb.Step) -> float:
    """Seconds a step, of the last few commits; of `step` alone when it is the first."""
    query = (
        select(steps.c.commit_time)
        .where(steps.c.job_id == job_id)
        .order_by(steps.c.number.desc())
        .limit(RATE_STEPS)
    )
    return seconds_per_step((await connection.execute(query)).scalars().all(), step)
