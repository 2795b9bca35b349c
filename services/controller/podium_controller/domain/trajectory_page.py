"""A page of trajectories: by step, mode, group and attempt, up to a number and a size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from podium.types.v1 import trajectory_pb2

from podium_controller.domain.identifiers import WAITING_ROOM

Cursor: TypeAlias = tuple[int, str, int, int]
"""Step, mode, position of the group, attempt: the last trajectory of a page."""


class TrajectoryPage:
    """What groups are put into, in their order, until one of their trajectories does not fit."""

    def __init__(self, job_id: str, after: Cursor | None, limit: int, max_bytes: int) -> None:
        """One trajectory fits always, whatever its size; those up to `after` are left out."""
        self.trajectories: list[trajectory_pb2.Trajectory] = []
        self.last: Cursor | None = None
        """Where the next page begins after; None as long as everything fitted."""
        self._job_id = job_id
        self._after = after
        self._limit = limit
        self._max_bytes = max_bytes
        self._bytes = 0
        self._latest: Cursor | None = None

    def add(self, place: tuple[int, str, int], body: bytes) -> bool:
        """Puts in a group's trajectories; False when the page is full, and no group may follow.

        Args:
            place: its step, mode and position.
            body: the group, serialised.
        """
        group = trajectory_pb2.Group.FromString(body)
        for trajectory in group.trajectories:
            here = (*place, trajectory.attempt)
            if self._after is not None and here <= self._after:
                continue
            trajectory.judgements.extend(_judged(group, trajectory.id))
            self._place(trajectory, *place[:2])
            self._bytes += trajectory.ByteSize()
            full = len(self.trajectories) == self._limit or self._bytes > self._max_bytes
            if full and self.trajectories:
                self.last = self._latest
                return False
            self.trajectories.append(trajectory)
            self._latest = here
        return True

    def _place(self, trajectory: trajectory_pb2.Trajectory, step: int, mode: str) -> None:
        """Says where it is of, whatever a client's own has there."""
        trajectory.job_id = self._job_id
        trajectory.evaluation_mode = mode
        trajectory.step = step
        if step == WAITING_ROOM and not mode:
            trajectory.ClearField("step")


def _judged(group: trajectory_pb2.Group, trajectory_id: str) -> Iterator[trajectory_pb2.Judgement]:
    """What a group's judges said about one attempt; nothing of those that only saw others."""
    for judgement in group.judgements:
        found = trajectory_pb2.Judgement()
        for opinion in judgement.opinions:
            about = [each for each in opinion.attempts if each.trajectory_id == trajectory_id]
            if about or opinion.failure:
                told = found.opinions.add()
                told.CopyFrom(opinion)
                del told.attempts[:]
                told.attempts.extend(about)
        if found.opinions:
            found.part = judgement.part
            if judgement.HasField("agreement"):
                found.agreement = judgement.agreement
            yield found
