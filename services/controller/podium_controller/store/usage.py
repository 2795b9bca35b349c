"""What jobs use, in the database: by the hour, so that any time of it can be asked for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from podium.jobs.v1 import job_service_pb2 as pb
from sqlalchemy import ColumnElement, Row, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_controller.domain.timestamps import now_ns
from podium_controller.domain.usage import COUNTED
from podium_controller.store.database import Database
from podium_controller.store.tables import jobs, usage
from podium_controller.store.trajectories import Write

HOUR = 3600
# Reports of one meter, under one lease.
_NUMBERS = 2**31

_SUMS = [func.coalesce(func.sum(usage.c[name]), 0).label(name) for name in COUNTED]


@dataclass(frozen=True)
class Within:
    """Which usage is asked for: of a project, of the hours of a time in seconds since the epoch."""

    project: str = ""
    start: int | None = None
    end: int | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """For a query of usage."""
        found = [usage.c.project == self.project] if self.project else []
        if self.start is not None:
            found.append(usage.c.hour > self.start - HOUR)
        if self.end is not None:
            found.append(usage.c.hour < self.end)
        return found


class UsageBook:
    """Implements `ports.UsageBook`."""

    def __init__(self, database: Database, write: Write, epoch: int) -> None:
        """`write` opens a transaction under the lease, whose fencing token is `epoch`."""
        self._database = database
        self._write = write
        self._epoch = epoch

    async def report(self, job_id: str, number: int, used: pb.Usage) -> None:
        """See `ports.UsageBook`."""
        mark = self._epoch * _NUMBERS + number
        async with self._write() as connection:
            marked = await connection.execute(
                update(jobs)
                .where(jobs.c.id == job_id, jobs.c.usage_mark < mark)
                .values(usage_mark=mark)
            )
            if marked.rowcount:
                await count_usage(connection, job_id, used)

    async def totals(self, job_ids: Collection[str]) -> dict[str, pb.Usage]:
        """See `ports.UsageBook`."""
        async with self._database.read() as connection:
            return await totals(connection, job_ids)

    async def of_projects(self, since: int, project: str = "") -> dict[str, pb.Usage]:
        """See `ports.UsageBook`."""
        async with self._database.read() as connection:
            return await _of_projects(connection, since, project)


async def count_usage(connection: AsyncConnection, job_id: str, used: pb.Usage) -> None:
    """Adds to what a job has used in this hour."""
    if not used.ByteSize():
        return
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    project = select(jobs.c.project).where(jobs.c.id == job_id).scalar_subquery()
    hour = now_ns() // 10**9 // HOUR * HOUR
    amounts = {name: getattr(used, name) for name in COUNTED}
    adding = dialect.insert(usage).values(job_id=job_id, hour=hour, project=project, **amounts)
    await connection.execute(
        adding.on_conflict_do_update(
            index_elements=["job_id", "hour"],
            set_={name: usage.c[name] + adding.excluded[name] for name in COUNTED},
        )
    )


async def totals(connection: AsyncConnection, job_ids: Collection[str]) -> dict[str, pb.Usage]:
    """What each of these jobs has used in all."""
    query = select(usage.c.job_id, *_SUMS).where(usage.c.job_id.in_(job_ids))
    rows = (await connection.execute(query.group_by(usage.c.job_id))).all()
    return {job_id: pb.Usage() for job_id in job_ids} | {row.job_id: _message(row) for row in rows}


async def _of_projects(
    connection: AsyncConnection, since: int, project: str
) -> dict[str, pb.Usage]:
    query = select(usage.c.project, *_SUMS).where(*Within(project, since).conditions())
    rows = (await connection.execute(query.group_by(usage.c.project))).all()
    return {row.project: _message(row) for row in rows}


class UsageStore:
    """What the API tells of it. Every method can raise DatabaseUnavailableError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def by_job(
        self, within: Within, before: int | None, limit: int
    ) -> tuple[list[pb.UsageRow], int | None]:
        """Rows of jobs, newest first, below a number; and where the next page begins."""
        query = (
            select(jobs.c.number, usage.c.job_id, usage.c.project, *_SUMS)
            .join(jobs, jobs.c.id == usage.c.job_id)
            .where(*within.conditions())
            .group_by(jobs.c.number, usage.c.job_id, usage.c.project)
            .order_by(jobs.c.number.desc())
            .limit(limit + 1)
        )
        if before is not None:
            query = query.where(jobs.c.number < before)
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
        page = [
            pb.UsageRow(job_id=row.job_id, project=row.project, usage=_message(row))
            for row in rows[:limit]
        ]
        return page, rows[limit - 1].number if len(rows) > limit else None

    async def of_projects(self, since: int, project: str = "") -> dict[str, pb.Usage]:
        """As `ports.UsageBook.of_projects`."""
        async with self._database.read() as connection:
            return await _of_projects(connection, since, project)

    async def by_project(
        self, within: Within, after: str, limit: int
    ) -> tuple[list[pb.UsageRow], str | None]:
        """Rows of projects after a name; and where the next page begins."""
        query = (
            select(usage.c.project, *_SUMS)
            .where(*within.conditions(), usage.c.project > after)
            .group_by(usage.c.project)
            .order_by(usage.c.project)
            .limit(limit + 1)
        )
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
        page = [pb.UsageRow(project=row.project, usage=_message(row)) for row in rows[:limit]]
        return page, page[-1].project if len(rows) > limit else None


def _message(row: Row[Any]) -> pb.Usage:
    message = pb.Usage()
    for field in pb.Usage.DESCRIPTOR.fields:
        if field.name in COUNTED:
            kind = int if field.cpp_type == field.CPPTYPE_INT64 else float
            setattr(message, field.name, kind(getattr(row, field.name)))
    return message
