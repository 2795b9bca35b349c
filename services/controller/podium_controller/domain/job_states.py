"""The life of a job: which state may follow which, and what requests ask for.

    QUEUED ──► RUNNING ──► SUCCEEDED | FAILED
      │  ▲        │ ▲
      │  │        ▼ │
      │  └─ PAUSED ◄─ PAUSING          CANCELLED from everywhere that has not ended,
      └────►                           through CANCELLING where something runs

PAUSED goes back to the queue: its place at the trainer was given away. A job
whose client is silent goes there straight from RUNNING.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from podium.core.errors import FailedPreconditionError
from podium.jobs.v1 import job_service_pb2 as pb

State: TypeAlias = pb.JobState.ValueType

ENDED: frozenset[State] = frozenset(
    {pb.JOB_STATE_SUCCEEDED, pb.JOB_STATE_FAILED, pb.JOB_STATE_CANCELLED}
)
"""States that a job never leaves."""

ACTIVE: frozenset[State] = frozenset(
    {pb.JOB_STATE_RUNNING, pb.JOB_STATE_PAUSING, pb.JOB_STATE_CANCELLING}
)
"""States in which a job holds a trainer and a pool, or is to hold them again after a crash."""

RESTING: frozenset[State] = frozenset({pb.JOB_STATE_QUEUED, pb.JOB_STATE_PAUSED})
"""States in which a job has not ended and holds nothing."""

_NEXT: Mapping[State, frozenset[State]] = {
    pb.JOB_STATE_QUEUED: frozenset(
        {pb.JOB_STATE_RUNNING, pb.JOB_STATE_PAUSED, pb.JOB_STATE_CANCELLED}
    ),
    pb.JOB_STATE_RUNNING: frozenset(
        {
            pb.JOB_STATE_PAUSING,
            pb.JOB_STATE_CANCELLING,
            pb.JOB_STATE_SUCCEEDED,
            pb.JOB_STATE_FAILED,
            # Resumed after its pause had begun to take effect.
            pb.JOB_STATE_QUEUED,
            # Its client sent nothing for too long.
            pb.JOB_STATE_PAUSED,
        }
    ),
    pb.JOB_STATE_PAUSING: frozenset(
        {
            pb.JOB_STATE_PAUSED,
            pb.JOB_STATE_RUNNING,
            pb.JOB_STATE_CANCELLING,
            pb.JOB_STATE_SUCCEEDED,
            pb.JOB_STATE_FAILED,
        }
    ),
    pb.JOB_STATE_PAUSED: frozenset({pb.JOB_STATE_QUEUED, pb.JOB_STATE_CANCELLED}),
    pb.JOB_STATE_CANCELLING: frozenset({pb.JOB_STATE_CANCELLED}),
    pb.JOB_STATE_SUCCEEDED: frozenset(),
    pb.JOB_STATE_FAILED: frozenset(),
    pb.JOB_STATE_CANCELLED: frozenset(),
}


def name(state: State) -> str:
    """`running` for JOB_STATE_RUNNING."""
    return pb.JobState.Name(state).removeprefix("JOB_STATE_").lower()


def is_legal(current: State, target: State) -> bool:
    """Whether `target` may follow `current`."""
    return target in _NEXT[current]


def after_cancel(current: State) -> State:
    """The state after a request to cancel; `current` when it asks for nothing new.

    Raises:
        FailedPreconditionError: the job has succeeded or failed.
    """
    if current in (pb.JOB_STATE_CANCELLING, pb.JOB_STATE_CANCELLED):
        return current
    if current in (pb.JOB_STATE_RUNNING, pb.JOB_STATE_PAUSING):
        return pb.JOB_STATE_CANCELLING
    return _checked(current, pb.JOB_STATE_CANCELLED, "cancelled")


def after_pause(current: State) -> State:
    """The state after a request to pause; `current` when it asks for nothing new.

    Raises:
        FailedPreconditionError: the job has ended or is being cancelled.
    """
    if current in (pb.JOB_STATE_PAUSING, pb.JOB_STATE_PAUSED):
        return current
    if current == pb.JOB_STATE_QUEUED:
        return pb.JOB_STATE_PAUSED
    return _checked(current, pb.JOB_STATE_PAUSING, "paused")


def after_resume(current: State) -> State:
    """The state after a request to resume; `current` when it asks for nothing new.

    Raises:
        FailedPreconditionError: the job has ended or is being cancelled.
    """
    if current in (pb.JOB_STATE_QUEUED, pb.JOB_STATE_RUNNING):
        return current
    if current == pb.JOB_STATE_PAUSING:
        return pb.JOB_STATE_RUNNING
    return _checked(current, pb.JOB_STATE_QUEUED, "resumed")


def after_run(current: State, outcome: State) -> State:
    """The state of a job whose run came to an `outcome` while people made other requests.

    A cancellation that came last wins; a pause that was taken back in the
    meantime puts the job into the queue again.

    Raises:
        FailedPreconditionError: the job is not running at all.
    """
    if current == pb.JOB_STATE_CANCELLING:
        return pb.JOB_STATE_CANCELLED
    if current == pb.JOB_STATE_RUNNING and outcome == pb.JOB_STATE_PAUSED:
        return pb.JOB_STATE_QUEUED
    return _checked(current, outcome, name(outcome))


def _checked(current: State, target: State, participle: str) -> State:
    if not is_legal(current, target):
        raise FailedPreconditionError(
            f"a job that is {name(current)} cannot be {participle}",
            reason="JOB_ENDED" if current in ENDED else "JOB_STATE",
            metadata={"state": name(current)},
        )
    return target
