"""Groups as they are stored: one row each, counted with what their step takes."""

from __future__ import annotations

from podium.core.errors import InternalError
from podium.types.v1 import trajectory_pb2
from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_controller.domain.accounts import StepTrajectories
from podium_controller.domain.ports import CONSUMED, GroupKey, StoredGroup
from podium_controller.domain.usage import of_groups
from podium_controller.store.tables import groups
from podium_controller.store.trajectories import count_groups, were_deleted
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
    if await _free(connection, key, group.id):
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


async def groups_of(
    connection: AsyncConnection, job_id: str, step: int, mode: str
) -> dict[int, StoredGroup]:
    """See `ports.Ledger.stored_groups`."""
    query = select(groups.c.position, groups.c.status, groups.c.body).where(
        groups.c.job_id == job_id,
        groups.c.evaluation.is_(bool(mode)),
        groups.c.step == step,
        groups.c.mode == mode,
        ~were_deleted(),
    )
    rows = (await connection.execute(query)).all()
    return {
        row.position: StoredGroup(
            row.position, row.status, trajectory_pb2.Group.FromString(row.body)
        )
        for row in rows
    }


async def forget_group(connection: AsyncConnection, key: GroupKey) -> None:
    """See `ports.Ledger.drop_group`."""
    id_ = key.group_id
    size = await group_size(connection, id_)
    # A version names what it was trained on: that stays, whoever asks late. As does what a step
    # has taken that was drawn for none.
    dropped = await connection.execute(
        delete(groups).where(
            groups.c.id == id_, groups.c.step == key.step, groups.c.status != CONSUMED
        )
    )
    if dropped.rowcount:
        await count_groups(connection, place(key), -1, -(size or 0))


async def group_size(connection: AsyncConnection, group_id: str) -> int | None:
    """Bytes of a stored group; None when there is none."""
    query = select(func.length(groups.c.body)).where(groups.c.id == group_id)
    return (await connection.execute(query)).scalar_one_or_none()


async def _free(connection: AsyncConnection, key: GroupKey, group_id: str) -> bool:
    """Whether the id is not taken yet; a group that has trained is never overwritten."""
    query = select(groups.c.status, groups.c.step).where(groups.c.id == group_id)
    row = (await connection.execute(query)).one_or_none()
    if row is not None and (row.status == CONSUMED or row.step != key.step):
        raise InternalError(
            f"group {group_id} of step {row.step} is {row.status} and cannot be stored again"
        )
    return row is None
