"""The registry's history of changes, and waiting for the next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from enum import IntEnum
from typing import Any

import sqlalchemy as sa
from podium.core.errors import OutOfRangeError
from podium.kit.sql import Database
from podium.registry.v1 import registry_service_pb2 as pb
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_registry.adapters.tables import changes

_PAGE = 500


class Change(IntEnum):
    """As `VersionChange` of the contract."""

    CREATED = pb.VERSION_CHANGE_CREATED
    DELETED = pb.VERSION_CHANGE_DELETED
    ALIAS_SET = pb.VERSION_CHANGE_ALIAS_SET
    ALIAS_DELETED = pb.VERSION_CHANGE_ALIAS_DELETED
    STATE_ADDED = pb.VERSION_CHANGE_STATE_ADDED


async def record(
    connection: AsyncConnection, change: Change, model: str, version: int, alias: str = ""
) -> None:
    """Appends a change in the transaction that makes it; see `record_all`."""
    await record_all(connection, change, model, [version], alias)


async def record_all(
    connection: AsyncConnection,
    change: Change,
    model: str,
    numbers: Sequence[int],
    alias: str = "",
) -> None:
    """Appends the same change of several versions of a model, in this order.

    On PostgreSQL a sequence number is handed out before its transaction
    commits; taking the table's lock first keeps a watch from seeing number
    n + 1 and passing over n.
    """
    if connection.dialect.name == "postgresql":
        await connection.execute(sa.text("lock table changes in exclusive mode"))
    same = {"change": int(change), "model": model, "alias": alias, "time": time.time()}
    await connection.execute(
        sa.insert(changes), [same | {"version": version} for version in numbers]
    )


class ChangeLog:
    """Reads changes in order, and wakes those who wait for more."""

    def __init__(self, database: Database, poll_seconds: float) -> None:
        """`poll_seconds`: how soon the changes of another replica are seen."""
        self._database = database
        self._poll = poll_seconds
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Tells every watch of this process that there is something new."""
        self._woken.set()
        self._woken = asyncio.Event()

    async def watch(self, model: str, after: int) -> AsyncGenerator[pb.WatchVersionsResponse, None]:
        """Every change after a sequence number, for ever.

        Raises:
            OutOfRangeError: the number is in the future.
        """
        async with self._database.read() as connection:
            last = await connection.scalar(sa.select(sa.func.max(changes.c.sequence))) or 0
        if after > last:
            raise OutOfRangeError(
                f"sequence {after} is in the future; the last is {last}",
                metadata={"last_sequence": str(last)},
            )
        while True:
            woken = self._woken
            query = sa.select(changes).where(changes.c.sequence > after)
            if model:
                query = query.where(changes.c.model == model)
            async with self._database.read() as connection:
                rows = list(
                    await connection.execute(query.order_by(changes.c.sequence).limit(_PAGE))
                )
            for row in rows:
                after = row.sequence
                yield _response(row)
            if len(rows) < _PAGE:
                try:
                    await asyncio.wait_for(woken.wait(), self._poll)
                except TimeoutError:
                    continue


def _response(row: sa.Row[Any]) -> pb.WatchVersionsResponse:
    response = pb.WatchVersionsResponse(
        sequence=row.sequence,
        change=row.change,
        model=row.model,
        version=row.version,
        alias=row.alias,
    )
    response.time.FromNanoseconds(int(row.time * 1e9))
    return response
