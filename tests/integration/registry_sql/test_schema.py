"""The migrations make the tables that the code works with."""

from __future__ import annotations

from pathlib import Path

import podium_registry
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from podium_registry.adapters.tables import metadata
from support.registry import Registry

MIGRATIONS = Path(podium_registry.__file__).parent / "migrations"


async def test_the_migrations_make_the_tables_of_the_code(registry: Registry) -> None:
    def differences(connection: sa.Connection) -> list[object]:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, metadata))

    async with registry.database.read() as connection:
        assert await connection.run_sync(differences) == []


async def test_a_second_start_changes_nothing(registry: Registry) -> None:
    made = await registry.publish("job", 0)
    await registry.database.migrate(MIGRATIONS)
    assert await registry.versions.get("job", 0) == made
