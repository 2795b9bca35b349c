"""The stored groups: how much room they take, and how the oldest ones go.

How many bytes each step has, and each version and mode of an evaluation, is kept in a row of its
own, written with the groups: nobody needs to read them all to know their size. Such a row stays
when its groups are deleted, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import groupby
from typing import Any, TypeAlias

from podium.core.errors import InternalError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from sqlalchemy import ColumnElement, Row, Select, and_, delete, func, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_controller.domain import job_states
from podium_controller.domain.accounts import StepTrajectories
from podium_controller.domain.evaluation_reward import has_judge
from podium_controller.domain.identifiers import WAITING_ROOM
from podium_controller.domain.retention import last_spare_step
from podium_controller.domain.timestamps import now_ns, timestamp
from podium_controller.domain.trajectory_page import Cursor, TrajectoryPage
from podium_controller.store.database import Database
from podium_controller.store.tables import evaluations, groups, jobs, trajectory_sums

Write: TypeAlias = Callable[[], AbstractAsyncContextManager[AsyncConnection]]

_SUM_KEY = ("job_id", "evaluation", "step", "mode")
_SUMS = trajectory_sums.c


class TrajectoryStore:
    """Implements `ports.TrajectoryKeeper`."""

    def __init__(self, database: Database, write: Write) -> None:
        """`write` opens a transaction under the lease."""
        self._database = database
        self._write = write

    async def stored_bytes(self) -> int:
        """See `ports.TrajectoryKeeper`."""
        async with self._database.read() as connection:
            found = await connection.execute(select(func.coalesce(func.sum(_SUMS.bytes), 0)))
            return int(found.scalar_one())

    async def spare(self, before: int, limit: int) -> list[StepTrajectories]:
        """See `ports.TrajectoryKeeper`."""
        async with self._database.read() as connection:
            begun = await _found(connection, _rows(limit).where(_SUMS.delete_time.is_not(None)))
            old = _rows(limit).where(_SUMS.delete_time.is_(None), _SUMS.time < before)
            of_ended = old.join(jobs, jobs.c.id == _SUMS.job_id).where(
                jobs.c.state.in_(job_states.ENDED)
            )
            ended = await _found(connection, of_ended)
            found = begun + ended
            if len(found) < limit:
                found += await _of_unended(connection, old)
        return found[:limit]

    async def delete(self, what: StepTrajectories, at_most: int) -> tuple[int, int]:
        """See `ports.TrajectoryKeeper`."""
        same = [getattr(_SUMS, name) == getattr(what, name) for name in _SUM_KEY]
        async with self._write() as connection:
            # First, as who deletes the job has it. Locked, not written: for a row written twice
            # PostgreSQL looks at its job again, which may be who deletes it.
            await connection.execute(select(_SUMS.step).where(*same).with_for_update())
            query = select(groups.c.id, func.length(groups.c.body).label("bytes"))
            rows = (await connection.execute(query.where(_of(what)).limit(at_most))).all()
            await connection.execute(
                delete(groups).where(groups.c.id.in_([row.id for row in rows]))
            )
            freed = sum(row.bytes for row in rows)
            left = _SUMS.bytes - freed if len(rows) == at_most else 0
            deleted_at = func.coalesce(_SUMS.delete_time, now_ns())
            await connection.execute(
                update(trajectory_sums).where(*same).values(bytes=left, delete_time=deleted_at)
            )
        return len(rows), freed


async def count_groups(
    connection: AsyncConnection, what: StepTrajectories, amount: int, size: int
) -> None:
    """So many groups, and bytes, are more than were there; less than 0 for fewer.

    Raises:
        InternalError: the groups there were deleted to make room; none is stored anew.
    """
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    key = {name: getattr(what, name) for name in _SUM_KEY}
    adding = dialect.insert(trajectory_sums).values(
        **key, groups=amount, bytes=size, time=now_ns(), delete_time=None
    )
    counted = await connection.execute(
        adding.on_conflict_do_update(
            index_elements=_SUM_KEY,
            set_={
                "groups": _SUMS.groups + adding.excluded.groups,
                "bytes": _SUMS.bytes + adding.excluded.bytes,
                "time": adding.excluded.time,
            },
            where=_SUMS.delete_time.is_(None),
        ).returning(_SUMS.step)
    )
    if counted.first() is None:
        raise InternalError(
            f"the groups of job {what.job_id}, step {what.step}, were deleted to make room; none"
            " can be stored again"
        )


def were_deleted() -> ColumnElement[bool]:
    """For a query of groups: whether theirs were deleted, though some may be there still."""
    same = [getattr(_SUMS, name) == getattr(groups.c, name) for name in _SUM_KEY]
    return select(_SUMS.step).where(*same, _SUMS.delete_time.is_not(None)).exists()


async def page_of(
    connection: AsyncConnection,
    job_id: str,
    *,
    evaluation: bool,
    step: int | None,
    after: Cursor | None,
    limit: int,
    max_bytes: int,
) -> tuple[list[trajectory_pb2.Trajectory], Cursor | None]:
    """Trajectories by step, group and attempt; and where the next page begins after."""
    key = tuple_(groups.c.step, groups.c.mode, groups.c.position)
    # In one statement: of a step that is being deleted it sees all, or that it was deleted.
    query = select(groups.c.step, groups.c.mode, groups.c.position, groups.c.body).where(
        groups.c.job_id == job_id, groups.c.evaluation.is_(evaluation), ~were_deleted()
    )
    if step is not None:
        query = query.where(groups.c.step == step)
    elif not evaluation:
        # Whoever reads on sees each of these once, with the step that takes it.
        query = query.where(groups.c.step != WAITING_ROOM)
    if after is not None:
        query = query.where(key >= after[:3])
    query = query.order_by(groups.c.step, groups.c.mode, groups.c.position)
    page = TrajectoryPage(job_id, after, limit, max_bytes)
    async with connection.stream(query) as rows:
        async for row in rows:
            if not page.add((row.step, row.mode, row.position), row.body):
                break
    return page.trajectories, page.last


async def deleted_of(
    connection: AsyncConnection, job_id: str, evaluation: bool, step: int | None
) -> list[pb.DeletedTrajectories]:
    """What was deleted of a job to make room: runs of steps, of one mode each."""
    return runs_of(
        [
            (row.step, row.mode, row.groups, row.delete_time)
            for row in await _tombstones(connection, job_id, evaluation, step)
        ]
    )


def runs_of(gone: Sequence[tuple[int, str, int, int]]) -> list[pb.DeletedTrajectories]:
    """Step, mode, number of groups and time of deletion, as runs; in the order of the modes."""
    runs: list[pb.DeletedTrajectories] = []
    in_order = sorted(gone, key=lambda each: (each[1], each[0]))
    for mode, of_mode in groupby(in_order, key=lambda each: each[1]):
        run: pb.DeletedTrajectories | None = None
        for step, _, amount, deleted_at in of_mode:
            # Evaluations are of every so many versions: their runs have gaps of what never was.
            if run is None or (not mode and step != run.last_step + 1):
                run = pb.DeletedTrajectories(first_step=step, mode=mode)
                runs.append(run)
            run.last_step = step
            run.groups += amount
            latest = max(run.delete_time.ToNanoseconds(), deleted_at)
            run.delete_time.CopyFrom(timestamp(latest))
    return runs


async def _tombstones(
    connection: AsyncConnection, job_id: str, evaluation: bool, step: int | None
) -> Sequence[Row[Any]]:
    query = select(_SUMS.step, _SUMS.mode, _SUMS.groups, _SUMS.delete_time).where(
        _SUMS.job_id == job_id,
        _SUMS.evaluation.is_(evaluation),
        _SUMS.delete_time.is_not(None),
    )
    if step is not None:
        query = query.where(_SUMS.step == step)
    rows: Sequence[Row[Any]] = (await connection.execute(query)).all()  # type: ignore[assignment]
    return rows


def _of(what: StepTrajectories) -> ColumnElement[bool]:
    return and_(
        groups.c.job_id == what.job_id,
        groups.c.evaluation.is_(what.evaluation),
        groups.c.step == what.step,
        groups.c.mode == what.mode,
    )


def _rows(limit: int) -> Select[Any]:
    columns = [getattr(_SUMS, name) for name in (*_SUM_KEY, "time")]
    return select(*columns).where(_SUMS.bytes > 0).order_by(_SUMS.time, _SUMS.step).limit(limit)


async def _found(connection: AsyncConnection, query: Select[Any]) -> list[StepTrajectories]:
    rows = (await connection.execute(query)).all()
    return [StepTrajectories(*row) for row in rows]


async def _of_unended(connection: AsyncConnection, old: Select[Any]) -> list[StepTrajectories]:
    """Of jobs that have not ended: committed steps and evaluations that they need no more."""
    unended = select(jobs.c.id, jobs.c.spec, jobs.c.completed_steps).where(
        jobs.c.state.not_in(job_states.ENDED), jobs.c.deleted.is_(False)
    )
    found: list[StepTrajectories] = []
    for job in (await connection.execute(unended)).all():
        spec = spec_pb2.JobSpec.FromString(job.spec)
        steps = old.where(
            _SUMS.job_id == job.id,
            _SUMS.evaluation.is_(False),
            _SUMS.step > WAITING_ROOM,
            _SUMS.step <= last_spare_step(spec, job.completed_steps),
        )
        measured = old.join(
            evaluations,
            and_(
                evaluations.c.job_id == _SUMS.job_id,
                evaluations.c.version == _SUMS.step,
                evaluations.c.mode == _SUMS.mode,
            ),
        ).where(_SUMS.job_id == job.id, _SUMS.evaluation.is_(True))
        if has_judge(spec):
            # Later versions are judged against the first one's attempts.
            measured = measured.where(_SUMS.step != spec.fork.version)
        found += await _found(connection, steps) + await _found(connection, measured)
    return sorted(found, key=lambda each: (each.time, each.step))
