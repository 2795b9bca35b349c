"""What the loop needs of a ledger where steps take the groups that are ready."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from podium.types.v1 import trajectory_pb2


@dataclass(frozen=True)
class Drawn:
    """How far a job has come that trains groups as they become ready."""

    step: int
    """The last that has its groups."""
    state: str
    """Of its draws."""


class TakenGroups(Protocol):
    """Part of `ports.Ledger`."""

    async def drawn(self, job_id: str) -> Drawn | None:
        """What was written with the last groups that a step took; None before the first."""

    async def take_groups(
        self, job_id: str, groups: Sequence[trajectory_pb2.Group], drawn: Drawn, *, last: bool
    ) -> None:
        """Gives a step its groups, in this order, out of those that no step has (WAITING_ROOM).

        From then on the step has these groups and no others, whatever happens.

        Args:
            last: whether no step comes after it; what waits is forgotten then.

        Raises:
            InternalError: the step has its groups, is not the next, or one of them waits not.
        """
