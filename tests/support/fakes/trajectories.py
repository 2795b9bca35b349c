"""`ports.TrajectoryKeeper` in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from podium.types.v1 import spec_pb2
from podium_controller.domain import job_states
from podium_controller.domain.accounts import StepTrajectories
from podium_controller.domain.evaluation_reward import has_judge
from podium_controller.domain.identifiers import WAITING_ROOM
from podium_controller.domain.retention import last_spare_step
from podium_controller.domain.timestamps import now_ns
from support.fakes.database import JobRow, MemoryDatabase, Tombstone

Write = Callable[[Callable[[], Any]], Awaitable[Any]]


class MemoryTrajectories:
    """See `podium_controller.store.trajectories.TrajectoryStore`."""

    def __init__(self, database: MemoryDatabase, write: Write) -> None:
        self._database = database
        self._write = write

    async def stored_bytes(self) -> int:
        def work() -> int:
            rows = self._database.jobs.values()
            return sum(len(each.body) for row in rows for each in row.groups.values())

        return await self._database.transact(work)  # type: ignore[no-any-return]

    async def spare(self, before: int, limit: int) -> list[StepTrajectories]:
        def work() -> list[StepTrajectories]:
            found = []
            for row in self._database.jobs.values():
                spec = spec_pb2.JobSpec.FromString(row.spec)
                for what in _steps(row):
                    begun = (what.mode, what.step) in row.deleted_groups
                    ended = row.state in job_states.ENDED
                    if not begun and (what.time >= before or not (ended or _done(row, spec, what))):
                        continue
                    rank = 0 if begun else 1 if ended else 2
                    found.append((rank, what.time, what.step, what))
            return [each[-1] for each in sorted(found, key=lambda each: each[:3])][:limit]

        return await self._database.transact(work)  # type: ignore[no-any-return]

    async def delete(self, what: StepTrajectories, at_most: int) -> tuple[int, int]:
        def work() -> tuple[int, int]:
            row = self._database.jobs[what.job_id]
            there = [
                id_
                for id_, each in row.groups.items()
                if (each.mode, each.step) == (what.mode, what.step)
            ]
            if there:
                gone = Tombstone(len(there), now_ns())
                row.deleted_groups.setdefault((what.mode, what.step), gone)
            freed = [len(row.groups.pop(id_).body) for id_ in there[:at_most]]
            return len(freed), sum(freed)

        return await self._write(work)  # type: ignore[no-any-return]


def _steps(row: JobRow) -> Iterator[StepTrajectories]:
    times: dict[tuple[str, int], int] = {}
    for each in row.groups.values():
        key = each.mode, each.step
        times[key] = max(each.time, times.get(key, 0))
    for (mode, step), time in sorted(times.items()):
        yield StepTrajectories(row.id, bool(mode), step, mode, time)


def _done(row: JobRow, spec: spec_pb2.JobSpec, what: StepTrajectories) -> bool:
    if what.evaluation:
        needed = has_judge(spec) and what.step == spec.fork.version
        return (what.step, what.mode) in row.evaluations and not needed
    return WAITING_ROOM < what.step <= last_spare_step(spec, row.completed_steps)
