"""A database whose users are cancelled at any moment."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import settings
from podium.kit.sql import Database


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/numbers.db")
    async with database.write() as connection:
        await connection.execute(sa.text("create table numbers (value integer)"))
    yield database
    await database.close()


async def write(database: Database) -> None:
    async with database.write() as connection:
        await connection.execute(sa.text("insert into numbers values (1)"))
        await connection.execute(sa.text("select count(*) from numbers"))


async def test_a_cancelled_write_leaves_the_database_to_the_next(database: Database) -> None:
    moments = random.Random(7)
    for _ in range(2 * settings().max_examples):
        writers = [asyncio.create_task(write(database)) for _ in range(4)]
        await asyncio.sleep(moments.uniform(0.0, 0.01))
        for writer in writers:
            writer.cancel()
        ended = await asyncio.gather(*writers, return_exceptions=True)
        assert {type(each) for each in ended} <= {type(None), asyncio.CancelledError}
        # A lock that was left behind would make it wait, and then fail, for half a minute.
        await write(database)
