"""Groups as they are stored: one row each, counted with what their step takes."""

from __future__ import annotations

from podium.core.errors import InternalError
from podium.types.v1 import trajectory_pb2
from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_controller.domain.accounts import StepTrajectories
from podium_controller.domain.ports import CONSUMED, GroupKey
from podium_controller.domain.usage import of_groups
from podium_controller.store.tables import groups
from podium_controller.store.trajectories import count_groups
from podium_controller.store.usage import count_usage


def place(key: GroupKey) -> StepTrajectories:
    """Where a group is counted."""
    return StepTrajectories(key.job_id, bool(key.mode), key.step, key.mode)


async def store_group(
    connection: AsyncConnection, key: GroupKey, status: str, group: trajectory_pb2.Group
) -> None:
    """Stores a group in place of what was there, which must not be consumed."""
    body = group.SerializeToString()
    stored = await group_size(connection, group.id)
    if await _free(connection, group.id):
        await connection.execute(
            insert(groups).values(
                id=group.id,
                job_id=key.job_id,
                evaluation=bool(key.mode),
                step=key.step,
                mode=key.mode,
                position=key.position,
                status=status,
                body=body,
            )
        )
    else:
        await connection.execute(
            update(groups).where(groups.c.id == group.id).values(status=status, body=body)
        )
    await count_groups(connection, place(key), int(stored is None), len(body) - (stored or 0))
    if stored is None:
        await count_usage(connection, key.job_id, of_groups([group]))


async def group_size(connection: AsyncConnection, group_id: str) -> int | None:
    """Bytes of a stored group; None when there is none."""
    query = select(func.length(groups.c.body)).where(groups.c.id == group_id)
    return (await connection.execute(query)).scalar_one_or_none()


async def _free(connection: AsyncConnection, group_id: str) -> bool:
    """Whether the id is not taken yet; a group that has trained is never overwritten."""
    status = (
        await connection.execute(select(groups.c.status).where(groups.c.id == group_id))
    ).scalar_one_or_none()
    if status == CONSUMED:
        raise InternalError(f"group {group_id} is consumed and cannot be stored again")
    return status is None
