"""The controller's database in memory: its rows, and transactions that are one step each.

The stores over it hold the contract of `podium_controller.store`; `support.store_contract` is
run against both.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from podium.jobs.v1 import job_service_pb2 as pb
from podium_controller.domain import job_states
from podium_controller.domain.errors import LeaseLostError
from podium_controller.domain.taken import Drawn
from podium_controller.domain.timestamps import now_ns
from podium_controller.store.rows import no_job

T = TypeVar("T")
Transact = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a transaction; a simulation puts latency, loss and crashes around it."""


@dataclass
class JobRow:
    """As `podium_controller.store.tables.jobs`."""

    number: int
    id: str
    spec: bytes
    project: str
    trace_parent: str
    completed_steps: int
    create_time: int
    queue_time: int
    pool: str = ""
    trainer_pool: str = ""
    state: job_states.State = pb.JOB_STATE_QUEUED
    phase: str = "wait"
    start_time: int | None = None
    end_time: int | None = None
    failure_reason: str = ""
    failure_message: str = ""
    wait_reason: str = ""
    wait_message: str = ""
    latest_step: bytes | None = None
    step_seconds: float | None = None
    finishing: bool = False
    deleted: bool = False
    events: list[EventRow] = field(default_factory=list)
    steps: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """Commit time and body by number."""
    evaluations: dict[tuple[int, str], bytes] = field(default_factory=dict)
    batches: dict[int, BatchRow] = field(default_factory=dict)
    groups: dict[str, GroupRow] = field(default_factory=dict)
    deleted_groups: dict[tuple[str, int], Tombstone] = field(default_factory=dict)
    """What was deleted to make room, by mode and step."""
    drawn: Drawn | None = None
    usage_mark: int = 0
    used: dict[int, pb.Usage] = field(default_factory=dict)
    """What it has used, by the hour's beginning."""
    usage: dict[str, dict[str, float]] = field(default_factory=dict)
    """What its judges have used, by month."""

    @property
    def last_sequence(self) -> int:
        return len(self.events)


@dataclass(frozen=True)
class EventRow:
    sequence: int
    type: pb.EventType.ValueType
    time: int
    message: str
    step: int
    mode: str | None


@dataclass(frozen=True)
class BatchRow:
    step: int
    request_id: str
    digest: str
    groups: int


@dataclass
class GroupRow:
    step: int
    mode: str
    position: int
    status: str
    body: bytes
    time: int = field(default_factory=now_ns)


@dataclass
class Tombstone:
    groups: int
    delete_time: int


@dataclass
class Lease:
    holder: str
    epoch: int
    expires: float


async def at_once(work: Callable[[], T]) -> T:
    """A transaction that nothing delays."""
    return work()


class MemoryDatabase:
    """The rows. What a transaction raises, it raises before it has changed any."""

    def __init__(
        self, transact: Transact = at_once, clock: Callable[[], float] = time.time
    ) -> None:
        """`clock` is the database's own, by which leases end."""
        self.transact = transact
        self.clock = clock
        self.jobs: dict[str, JobRow] = {}
        self.requests: dict[str, tuple[str, str]] = {}
        """Digest and job by request id."""
        self.leases: dict[str, Lease] = {}

    def through(self, transact: Transact) -> MemoryDatabase:
        """The same rows for somebody whose transactions go another way."""
        view = MemoryDatabase(transact, self.clock)
        view.jobs, view.requests, view.leases = self.jobs, self.requests, self.leases
        return view

    def job(self, job_id: str) -> JobRow:
        """A job that was not deleted.

        Raises:
            NotFoundError: there is none.
        """
        row = self.any_job(job_id)
        if row.deleted:
            raise no_job(job_id)
        return row

    def any_job(self, job_id: str) -> JobRow:
        """A job, deleted or not.

        Raises:
            NotFoundError: there never was one.
        """
        if job_id not in self.jobs:
            raise no_job(job_id)
        return self.jobs[job_id]

    def check_fence(self, name: str, epoch: int) -> None:
        """Lets a transaction go on only under the newest lease."""
        lease = self.leases.get(name)
        if lease is None or lease.epoch != epoch:
            raise LeaseLostError("another controller has taken over")

    def client_is_gone(self, row: JobRow) -> bool:
        """Whether a job's client has said that it lives and lives no more."""
        lease = self.leases.get(client_lease(row))
        return lease is not None and lease.expires <= self.clock()


def client_lease(row: JobRow) -> str:
    """The name of the lease of a job's client."""
    return f"client/{row.number}"


def add_event(
    row: JobRow,
    kind: pb.EventType.ValueType,
    message: str,
    *,
    step: int = 0,
    mode: str | None = None,
) -> None:
    """Appends to a job's history."""
    row.events.append(EventRow(len(row.events) + 1, kind, now_ns(), message, step, mode))


def move(
    row: JobRow,
    target: job_states.State,
    *,
    reason: str = "",
    message: str = "",
    phase: str = "wait",
) -> None:
    """Writes a new state, what follows from it, and the event that tells of it."""
    now = now_ns()
    if target in job_states.RESTING | job_states.ENDED or row.state == pb.JOB_STATE_QUEUED:
        row.wait_reason = row.wait_message = ""
    if target in job_states.RESTING:
        row.phase = phase
    if target == pb.JOB_STATE_QUEUED:
        row.queue_time = now
    if target == pb.JOB_STATE_RUNNING and row.start_time is None:
        row.start_time = now
    if target in job_states.ENDED:
        row.end_time, row.phase = now, ""
    if target == pb.JOB_STATE_FAILED:
        row.failure_reason, row.failure_message = reason, message
    row.state = target
    verb = "has" if target in (pb.JOB_STATE_SUCCEEDED, pb.JOB_STATE_FAILED) else "is"
    text = f"the job {verb} {job_states.name(target)}"
    told = f"{text}: {message}" if message else text
    add_event(row, pb.EVENT_TYPE_STATE, told, step=row.completed_steps)
