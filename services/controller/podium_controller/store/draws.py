"""Groups that no step has when they are drawn: they wait, and a step takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from podium.core.errors import InternalError
from podium.types.v1 import trajectory_pb2
from sqlalchemy import Row, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_controller.domain.identifiers import WAITING_ROOM
from podium_controller.domain.ports import JUDGED, GroupKey
from podium_controller.domain.taken import Drawn
from podium_controller.store.groups import group_size, place
from podium_controller.store.tables import draws, groups
from podium_controller.store.trajectories import count_groups


async def drawn_of(connection: AsyncConnection, job_id: str) -> Drawn | None:
    """See `ports.Ledger.drawn`."""
    query = select(draws.c.step, draws.c.state).where(draws.c.job_id == job_id)
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else Drawn(row.step, row.state)


async def take(
    connection: AsyncConnection,
    job: Row[Any],
    taken: Sequence[trajectory_pb2.Group],
    drawn: Drawn,
    *,
    last: bool,
) -> None:
    """See `ports.Ledger.take_groups`; `job` is locked."""
    before = await drawn_of(connection, job.id)
    if drawn.step != job.completed_steps + 1 or (before and before.step >= drawn.step):
        raise InternalError(
            f"job {job.id} has {job.completed_steps} steps and took groups for step"
            f" {before.step if before else 0}; step {drawn.step} cannot take any"
        )
    waiting, step = GroupKey(job.id, WAITING_ROOM, 0), GroupKey(job.id, drawn.step, 0)
    sizes = [await group_size(connection, each.id) or 0 for each in taken]
    bodies = [each.SerializeToString() for each in taken]
    for position, (group, body) in enumerate(zip(taken, bodies, strict=True)):
        moved = await connection.execute(
            update(groups)
            .where(_waits(job.id), groups.c.id == group.id)
            .values(step=drawn.step, position=position, status=JUDGED, body=body)
        )
        if not moved.rowcount:
            raise InternalError(f"group {group.id} does not wait for a step")
    await count_groups(connection, place(waiting), -len(taken), -sum(sizes))
    await count_groups(connection, place(step), len(taken), sum(map(len, bodies)))
    if last:
        await _forget(connection, job.id)
    values = {"step": drawn.step, "state": drawn.state}
    if before is None:
        await connection.execute(insert(draws).values(job_id=job.id, **values))
    else:
        await connection.execute(update(draws).where(draws.c.job_id == job.id).values(**values))


async def _forget(connection: AsyncConnection, job_id: str) -> None:
    query = select(func.count(), func.coalesce(func.sum(func.length(groups.c.body)), 0))
    count, size = (await connection.execute(query.where(_waits(job_id)))).one()
    if count:
        await connection.execute(delete(groups).where(_waits(job_id)))
        await count_groups(connection, place(GroupKey(job_id, WAITING_ROOM, 0)), -count, -size)


def _waits(job_id: str) -> Any:
    return (
        (groups.c.job_id == job_id)
        & groups.c.evaluation.is_(False)
        & (groups.c.step == WAITING_ROOM)
    )
