"""Databases before their first row, which are migrated once and then copied.

Migrating takes longer than most tests.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from podium.kit import sql
from podium_controller.store import Database

if TYPE_CHECKING:
    from support.postgres import Postgres


class Migrated:
    """Databases of a service."""

    def __init__(self, name: str, migrate: Callable[[str], Awaitable[None]]) -> None:
        """`migrate` brings the database with this URL to the newest revision, and closes it."""
        self._name = name
        self._migrate = migrate
        self._file = b""

    async def sqlite(self, folder: Path) -> str:
        """The URL of one in this folder; one that is there stays."""
        path = folder / f"{self._name}.db"
        if not path.exists():
            content = self._file or await self._made()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return _url(path)

    async def postgresql(self, server: Postgres) -> str:
        """The URL of a new one."""
        template = server.templates.get(self._name)
        if template is None:
            await self._migrate(template := server.create_database())
            server.templates[self._name] = template
        return server.create_database(template)

    async def _made(self) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "made.db"
            await self._migrate(_url(path))
            self._file = path.read_bytes()
        return self._file


def _url(path: Path) -> str:
    return f"sqlite+aiosqlite:///{path}"


async def _migrate_controller(url: str) -> None:
    database = Database(url)
    await database.migrate()
    await database.close()


async def _migrate_registry(url: str) -> None:
    import podium_registry

    database = sql.Database(url)
    await database.migrate(Path(podium_registry.__file__).parent / "migrations")
    await database.close()


CONTROLLER = Migrated("controller", _migrate_controller)
REGISTRY = Migrated("registry", _migrate_registry)


async def empty_database(folder: Path) -> str:
    """The URL of the controller's SQLite database in this folder."""
    return await CONTROLLER.sqlite(folder)
