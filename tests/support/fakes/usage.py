"""`ports.UsageBook` in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from podium.jobs.v1 import job_service_pb2 as pb
from podium_controller.domain.timestamps import now_ns
from podium_controller.domain.usage import add
from podium_controller.store.usage import HOUR
from support.fakes.database import JobRow, MemoryDatabase

Write = Callable[[Callable[[], Any]], Awaitable[Any]]


class MemoryUsage:
    """See `podium_controller.store.usage.UsageBook`."""

    def __init__(self, database: MemoryDatabase, write: Write, epoch: int) -> None:
        self._database = database
        self._write = write
        self._epoch = epoch

    async def report(self, job_id: str, number: int, used: pb.Usage) -> None:
        def work() -> None:
            row = self._database.jobs.get(job_id)
            mark = self._epoch * 2**31 + number
            if row is not None and row.usage_mark < mark:
                row.usage_mark = mark
                count_usage(row, used)

        await self._write(work)

    async def totals(self, job_ids: Collection[str]) -> dict[str, pb.Usage]:
        def work() -> dict[str, pb.Usage]:
            return {id_: total(self._database.jobs.get(id_)) for id_ in job_ids}

        return await self._database.transact(work)  # type: ignore[no-any-return]

    async def of_projects(self, since: int, project: str = "") -> dict[str, pb.Usage]:
        def work() -> dict[str, pb.Usage]:
            found: dict[str, pb.Usage] = {}
            for row in self._database.jobs.values():
                own = row.project
                for hour, used in row.used.items():
                    if hour > since - HOUR and project in ("", own):
                        add(found.setdefault(own, pb.Usage()), used)
            return found

        return await self._database.transact(work)  # type: ignore[no-any-return]


def count_usage(row: JobRow, used: pb.Usage) -> None:
    """Adds to what a job has used in this hour."""
    hour = now_ns() // 10**9 // HOUR * HOUR
    add(row.used.setdefault(hour, pb.Usage()), used)


def total(row: JobRow | None) -> pb.Usage:
    """What a job has used in all."""
    found = pb.Usage()
    for each in row.used.values() if row else ():
        add(found, each)
    return found
