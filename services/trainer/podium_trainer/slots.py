"""The slots of a trainer: which jobs hold one, and what of their versions is being stored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from podium.core.errors import FailedPreconditionError, ResourceExhaustedError

from podium_trainer.adapters.state_keeper import StateKeeper
from podium_trainer.adapters.versions import CheckpointStore, PublishedVersion
from podium_trainer.domain import metrics
from podium_trainer.domain.sharing import SlotClaim, check_room
from podium_trainer.learner.session import JobConfig, Session


@dataclass(eq=False)
class Storing:
    """Versions of a job on their way to the registry: of one that was closed, too."""

    keeper: StateKeeper
    saving: asyncio.Lock = field(default_factory=asyncio.Lock)
    keeping: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_busy(self) -> bool:
        """Whether anything is on its way."""
        return self.saving.locked() or self.keeping.locked() or self.keeper.is_busy


@dataclass(frozen=True)
class Stowed:
    """A job whose session is in the registry until its next call."""

    config: JobConfig
    version: int
    """Whose state it was stored as: its step."""


@dataclass(eq=False)
class OpenJob:
    """A job that holds a slot: it is open, stowed, or being opened."""

    claim: SlotClaim
    project: str
    storing: Storing
    calls: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by a call that needs the session as it is."""
    session: Session | None = None
    """None while it is being opened, and while it is stowed."""
    stowed: Stowed | None = None
    is_closing: bool = False
    used: float = field(default_factory=time.monotonic)
    """When its last call ended, of the monotonic clock in seconds."""
    published: PublishedVersion | None = None
    """The version that the session's state is known to be in the registry as."""
    parent: int | None = None
    """The version that the job was last at."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Of the step that the weights are at."""

    @property
    def id(self) -> str:
        """The job's."""
        return self.claim.job_id

    @property
    def is_changing(self) -> bool:
        """Whether it may soon hold its slot no more."""
        return self.is_closing or (self.session is None and self.stowed is None)

    @property
    def step(self) -> int | None:
        """The step that the weights are at; None while it is being opened."""
        if self.stowed is not None:
            return self.stowed.version
        return None if self.session is None else self.session.step

    def opened(
        self, session: Session, published: PublishedVersion | None, version: int | None
    ) -> None:
        """It is open at that version, or fresh."""
        self.session, self.published, self.parent = session, published, version
        self.stowed = None
        self.storing.keeper.open(version)

    def stow(self, config: JobConfig) -> None:
        """Its session is no more here: `published` has its weights and its state."""
        assert self.published is not None
        self.stowed = Stowed(config, self.published.version)
        self.session = None

    def released(self) -> None:
        """Its session is no more."""
        self.session = self.published = self.parent = self.stowed = None
        self.metrics = {}
        self.storing.keeper.open(None)

    def is_at(self, version: int | None) -> bool:
        """Whether the open state is what opening at that version would make.

        A step that was taken but not published is not: its version may be another's.
        """
        if version is None:
            return self.session is not None and self.session.step == 0 and self.parent is None
        return self.published is not None and self.published.version == version


class JobSlots:
    """Up to `max_jobs` jobs that may be open at once."""

    def __init__(self, versions: CheckpointStore, max_jobs: int) -> None:
        self._versions = versions
        self.max_jobs = max_jobs
        self._jobs: dict[str, OpenJob] = {}
        """The oldest first."""
        self._changed = asyncio.Condition()
        self._storing: dict[str, Storing] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def claims(self) -> list[SlotClaim]:
        """Of the jobs that hold a slot, in the order in which they took it."""
        return [job.claim for job in self._jobs.values()]

    @property
    def jobs(self) -> list[OpenJob]:
        """Those that hold a slot, the oldest first."""
        return list(self._jobs.values())

    def get(self, job_id: str) -> OpenJob | None:
        """The job, if it holds a slot."""
        return self._jobs.get(job_id)

    def step(self, job_id: str) -> int:
        """The step that the job's weights are at.

        Raises:
            FailedPreconditionError: JOB_NOT_OPEN.
        """
        job = self._jobs.get(job_id)
        if job is None or job.step is None:
            raise _not_open(job_id)
        return job.step

    def storing(self, job_id: str) -> Storing:
        """What of the job's versions is on its way; it may be being opened.

        Raises:
            FailedPreconditionError: JOB_NOT_OPEN.
        """
        job = self._jobs.get(job_id)
        if job is None:
            raise _not_open(job_id)
        return job.storing

    @asynccontextmanager
    async def call(self, job_id: str) -> AsyncIterator[OpenJob]:
        """The job to itself, once its other calls have ended. It may be stowed.

        Raises:
            FailedPreconditionError: JOB_NOT_OPEN.
        """
        while (job := self._jobs.get(job_id)) is not None:
            async with job.calls:
                if self._jobs.get(job_id) is job:
                    self.step(job_id)
                    try:
                        yield job
                    finally:
                        job.used = time.monotonic()
                    return
        raise _not_open(job_id)

    async def take(self, claim: SlotClaim) -> OpenJob:
        """The job's slot, or a free one. Waits while one that is in the way may be leaving.

        Raises:
            ResourceExhaustedError: TRAINER_BUSY.
        """
        async with self._changed:
            while True:
                job = self._jobs.get(claim.job_id)
                others = [each for each in self._jobs.values() if each is not job]
                try:
                    check_room(claim, [each.claim for each in others], self.max_jobs)
                except ResourceExhaustedError:
                    if not any(each.is_changing for each in others):
                        raise
                    await self._changed.wait()
                    continue
                if job is None:
                    job = OpenJob(claim, "", self._storing_of(claim.job_id))
                    self._jobs[claim.job_id] = job
                    self.count()
                # From now on others are measured by it.
                job.claim = claim
                return job

    def free(self, job: OpenJob) -> None:
        """The job holds its slot no more; `tell` those that wait."""
        del self._jobs[job.id]
        self.count()

    def count(self) -> None:
        """Shows how many there are."""
        metrics.OPEN_JOBS.set(len(self._jobs))
        metrics.STOWED_JOBS.set(sum(job.stowed is not None for job in self._jobs.values()))

    async def tell(self) -> None:
        """Has those that wait in `take` look again."""
        async with self._changed:
            self._changed.notify_all()

    async def settled(self) -> None:
        """Returns when no state is on its way, whatever became of it."""
        await asyncio.gather(*(each.keeper.settled() for each in self._storing.values()))

    def _storing_of(self, job_id: str) -> Storing:
        if self.max_jobs == 1:
            # One after another, whosever they are: memory holds one copy, and other processes
            # store their parts in the order in which they were asked.
            job_id = ""
        self._storing = {
            name: storing
            for name, storing in self._storing.items()
            if name in ("", job_id) or name in self._jobs or storing.is_busy
        }
        return self._storing.setdefault(job_id, Storing(StateKeeper(self._versions)))


def _not_open(job_id: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"job {job_id} is not open here; open it first",
        reason="JOB_NOT_OPEN",
        metadata={"job_id": job_id},
    )


def check_step(expected: int, got: int, what: str) -> None:
    """Whether a call is about the step that it may be about; `what` begins the sentence of that.

    Raises:
        FailedPreconditionError: WRONG_STEP.
    """
    if got != expected:
        raise FailedPreconditionError(
            f"got step {got}; {what} {expected}",
            reason="WRONG_STEP",
            metadata={"step": str(got), "expected_step": str(expected)},
        )
