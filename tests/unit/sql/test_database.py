"""A database whose users are cancelled at any moment."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import settings
from podium.core.errors import InvalidArgumentError
from podium.kit.sql import Database
from podium.kit.sql.url import database_url


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


@pytest.mark.parametrize("driver", ["postgres", "postgresql", "postgresql+psycopg"])
def test_the_url_that_an_operator_of_postgresql_gives_is_taken(driver: str) -> None:
    url = database_url(f"{driver}://u:p%40ss%2Fw%3A%25@db:5432/podium?sslmode=verify-full")
    assert (url.drivername, url.password, url.host) == ("postgresql+psycopg", "p@ss/w:%", "db")
    assert url.query == {"sslmode": "verify-full"}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:tops@cret@db:5432/podium",
        "postgresql://u:tops@cret:x/y@db:5432/podium",
        "postgresql://u:tops#cret@db:port/podium",
        "host=db user=u password=tops",
    ],
)
def test_a_url_that_cannot_be_read_is_told_without_its_password(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"DATABASE_URL.*percent-encoding") as refused:
        Database(url)
    assert not re.search("tops|cret", str(refused.value))


@pytest.mark.parametrize("driver", ["mysql", "postgresql+asyncpg"])
def test_a_database_of_another_kind_is_named(driver: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(f"got {driver}://; allowed is one")):
        Database(f"{driver}://u:p@db/podium")
