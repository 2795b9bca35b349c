"""Garbage collection against a version that is published meanwhile."""

from __future__ import annotations

import asyncio

import pytest
import sqlalchemy as sa
from podium_registry.adapters.blobs import touch
from podium_registry.adapters.tables import version_blobs
from support.registry import MakeRegistry, Registry


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_a_blob_that_is_named_while_the_collector_waits_for_its_row_is_kept(
    replica: MakeRegistry,
) -> None:
    publisher, other = replica(grace_seconds=0), replica(grace_seconds=0)
    digest = await publisher.put(b"named in time")
    async with publisher.database.write() as connection:
        await touch(connection, [digest])
        collecting = asyncio.create_task(other.collector.collect())
        while not await _waits(publisher):
            await asyncio.sleep(0.01)
        row = {"model": "m", "version": 0, "digest": digest}
        await connection.execute(sa.insert(version_blobs).values(row))
    assert await collecting == (0, 0)
    assert await publisher.read(digest) == b"named in time"


async def _waits(registry: Registry) -> bool:
    """Whether somebody waits for a lock: PostgreSQL tells each transaction once."""
    waiting = "select count(*) from pg_locks where not granted"
    async with registry.database.read() as connection:
        return bool(await connection.scalar(sa.text(waiting)))
