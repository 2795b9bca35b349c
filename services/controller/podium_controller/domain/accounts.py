"""What the controller keeps accounts of, as protocols: the room that groups take, and usage."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from podium.jobs.v1 import job_service_pb2 as pb

from podium_controller.domain.budget import ProjectUse


@dataclass(frozen=True)
class StepTrajectories:
    """The stored groups of a training step, or of a version and mode of evaluation."""

    job_id: str
    evaluation: bool
    step: int
    mode: str = ""
    time: int = 0
    """When the last of them was stored, in nanoseconds since the epoch."""


class TrajectoryKeeper(Protocol):
    """The room that stored groups take.

    Every method can raise DatabaseUnavailableError, a deletion LeaseLostError.
    """

    async def stored_bytes(self) -> int:
        """Of all groups, as they are before the database compresses them."""

    async def spare(self, before: int, limit: int) -> list[StepTrajectories]:
        """Groups that nothing but a reader needs, in the order in which they are to go.

        Those whose deletion was begun, then those of jobs that have ended, then those of steps
        and evaluations that are committed; of each the oldest first.

        Args:
            before: only those that were stored before, in nanoseconds since the epoch.
        """

    async def delete(self, what: StepTrajectories, at_most: int) -> tuple[int, int]:
        """Deletes so many of them in one transaction; how many these were, and their bytes.

        From the first call on nobody is shown any of them. Fewer than `at_most` were the last.
        """


class UsageBook(Protocol):
    """What jobs have used. Tokens are counted by what stores them, seconds by a meter's reports.

    Every method can raise DatabaseUnavailableError, a report LeaseLostError.
    """

    async def report(self, job_id: str, number: int, used: pb.Usage) -> None:
        """Adds to what a job has used, once for each number.

        Args:
            number: greater than that of any report that this lease's holder made before; who does
                not know whether a report was counted makes it again.
        """

    async def totals(self, job_ids: Collection[str]) -> dict[str, pb.Usage]:
        """What each of these jobs has used in all."""

    async def of_projects(self, since: int, project: str = "") -> dict[str, pb.Usage]:
        """What jobs have used since an hour's begin, by project; deleted jobs too.

        Args:
            since: in seconds since the epoch.
            project: only this one's; empty for all.
        """


class JobMeter(Protocol):
    """Counts what the run of one job uses while it lasts."""

    def hold_trainer(self) -> None:
        """From now on the job holds a trainer."""

    async def spent(self) -> pb.Usage:
        """What the job has used in all, this moment included."""

    async def spent_by_project(self, project: str, *, in_all: bool) -> ProjectUse:
        """What the project's jobs have used; others' half a minute ago.

        Args:
            in_all: whether also of all time.
        """

    async def close(self) -> None:
        """The run is over; what it has used until now is reported. Idempotent."""
