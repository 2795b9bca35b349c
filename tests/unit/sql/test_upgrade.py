"""Databases that were migrated by an older program, a newer one, or another service's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import podium_controller
import podium_registry
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from podium.core.errors import FailedPreconditionError
from podium.kit.sql import Database

FOLDERS = {
    package.__name__: Path(str(package.__file__)).parent / "migrations"
    for package in (podium_controller, podium_registry)
}


def config(folder: Path) -> Config:
    made = Config()
    made.set_main_option("script_location", str(folder))
    return made


def revisions(folder: Path) -> list[str]:
    """Newest first."""
    return [each.revision for each in ScriptDirectory.from_config(config(folder)).walk_revisions()]


OLDER = [
    pytest.param(folder, revision, id=f"{name}-{revision}")
    for name, folder in FOLDERS.items()
    for revision in dict.fromkeys((revisions(folder)[1], revisions(folder)[-1]))
]


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    made = Database(f"sqlite:///{tmp_path}/service.db")
    yield made
    await made.close()


async def migrated_to(database: Database, folder: Path, revision: str) -> None:
    def go(connection: sa.Connection) -> None:
        made = config(folder)
        made.attributes["connection"] = connection
        command.upgrade(made, revision)

    async with database.write() as connection:
        await connection.run_sync(go)


async def tables_of(database: Database) -> list[sa.Table]:
    """As they are there, those that others refer to first."""
    found = sa.MetaData()
    async with database.read() as connection:
        await connection.run_sync(found.reflect)
    return [table for table in found.sorted_tables if table.name != "alembic_version"]


def values(table: sa.Table, number: int) -> dict[str, Any]:
    """What a program that knows these columns might write: rows that refer to those of `number`."""
    return {column.name: _value(column, number) for column in table.columns}


def _value(column: sa.Column[Any], number: int) -> Any:
    if column.name == "month":
        return "2026-11"
    if isinstance(column.type, sa.JSON):
        return {}
    if isinstance(column.type, sa.String):
        return f"x{number}"
    if isinstance(column.type, sa.Boolean):
        return True
    return b"" if isinstance(column.type, sa.LargeBinary) else number


async def write(database: Database, tables: list[sa.Table], number: int) -> None:
    async with database.write() as connection:
        for table in tables:
            await connection.execute(sa.insert(table).values(values(table, number)))


@pytest.mark.parametrize(("folder", "revision"), OLDER)
async def test_an_older_programs_rows_stay_and_it_goes_on_writing_while_it_is_replaced(
    database: Database, folder: Path, revision: str
) -> None:
    await migrated_to(database, folder, revision)
    older = await tables_of(database)
    await write(database, older, 1)
    await database.migrate(folder)
    # It still has the lease, or answers its last calls.
    await write(database, older, 2)
    async with database.read() as connection:
        for table in older:
            rows = (await connection.execute(sa.select(table))).mappings().all()
            written = [values(table, number) for number in (1, 2)]
            assert all(row in written for row in map(dict, rows)), table.name
            assert len(rows) == 2, table.name


@pytest.mark.parametrize("folder", FOLDERS.values(), ids=FOLDERS)
async def test_a_newer_programs_database_is_refused_in_words(
    database: Database, folder: Path
) -> None:
    await database.migrate(folder)
    newest = revisions(folder)[0]
    async with database.write() as connection:
        await connection.execute(sa.text("update alembic_version set version_num = '9999'"))
    with pytest.raises(FailedPreconditionError, match=rf"at revision 9999.* to {newest}") as told:
        await database.migrate(folder)
    assert told.value.reason == "DATABASE_NEWER"


@pytest.mark.parametrize(
    ("theirs", "ours", "reason"),
    [
        ("podium_controller", "podium_registry", "DATABASE_NEWER"),
        ("podium_registry", "podium_controller", "DATABASE_OF_ANOTHER"),
    ],
)
async def test_the_database_of_another_service_is_refused_in_words(
    database: Database, theirs: str, ours: str, reason: str
) -> None:
    await database.migrate(FOLDERS[theirs])
    with pytest.raises(FailedPreconditionError, match="another service's") as told:
        await database.migrate(FOLDERS[ours])
    assert told.value.reason == reason
    await database.migrate(FOLDERS[theirs])
