"""A database that is damaged, or may not be written, is told as that."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from podium.core.errors import UnavailableError
from podium.kit.sql import Database


def overwritten(file: Path) -> None:
    file.write_bytes(b"some other file" * 1000)


def torn(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    file.write_bytes(content)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database with one table."""
    path = tmp_path / "numbers.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table numbers (value integer)")
        connection.executemany("insert into numbers values (?)", [(1,)] * 1000)
        connection.commit()
    return path


async def told_by(file: Path, *statements: str) -> UnavailableError:
    """What statements of one transaction come to."""
    database = Database(f"sqlite:///{file}")
    try:
        async with database.write() as connection:
            for statement in statements:
                await connection.execute(sa.text(statement))
    except UnavailableError as error:
        return error
    finally:
        await database.close()
    pytest.fail("nothing was refused")


@pytest.mark.parametrize("damage", [overwritten, torn])
async def test_a_damaged_database_is_told_as_damaged(
    file: Path, damage: Callable[[Path], None]
) -> None:
    damage(file)
    error = await told_by(file, "select sum(value) from numbers")
    assert error.reason == "DATABASE_DAMAGED"


async def test_a_database_that_may_only_be_read_is_told_as_read_only(file: Path) -> None:
    error = await told_by(file, "pragma query_only = on", "insert into numbers values (2)")
    assert error.reason == "DATABASE_READ_ONLY"


async def test_what_a_statement_would_have_stored_is_in_no_log(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database(f"sqlite:///{file}")
    try:
        async with database.write() as connection:
            await connection.execute(
                sa.text("insert into numbers values (:value, :value)"), {"value": "what was said"}
            )
    except UnavailableError:
        # As what nobody has foreseen is logged.
        logging.getLogger(__name__).exception("failed")
    await database.close()
    assert "insert into numbers" in caplog.text
    assert "what was said" not in caplog.text
