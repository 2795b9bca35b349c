"""The controller's database, whose loss is not to be taken for the loss of a peer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from podium.core.errors import ResourceExhaustedError, UnavailableError
from podium.kit import sql
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_controller.domain.errors import DatabaseUnavailableError

_MIGRATIONS = Path(__file__).resolve().parents[1] / "migrations"


class Database:
    """Opens transactions on SQLite or PostgreSQL; see `podium.kit.sql.Database`.

    Whatever keeps it from doing so, a full disk, a read-only or a damaged database included, is a
    DatabaseUnavailableError: jobs wait for it and then go on.
    """

    def __init__(self, url: str) -> None:
        """Nothing is opened yet; a SQLite file's folder is made."""
        self._database = sql.Database(url)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads."""
        with _own():
            async with self._database.read() as connection:
                yield connection

    @asynccontextmanager
    async def write(self, *, urgent: bool = False) -> AsyncIterator[AsyncConnection]:
        """A transaction that commits when the block ends, and not when it raises.

        An urgent one goes before those that wait.
        """
        with _own():
            async with self._database.write(urgent=urgent) as connection:
                yield connection

    async def reachable(self, within_seconds: float) -> None:
        """Returns once the database lets us in; a DatabaseUnavailableError after that time."""
        with _own():
            await self._database.reachable(within_seconds)

    async def migrate(self) -> None:
        """Brings the schema to the newest revision; safe when several start at once."""
        with _own():
            await self._database.migrate(_MIGRATIONS)

    async def close(self) -> None:
        """Closes every connection."""
        await self._database.close()


@contextmanager
def _own() -> Iterator[None]:
    try:
        yield
    except (UnavailableError, ResourceExhaustedError) as error:
        raise DatabaseUnavailableError(error.message, reason=error.reason) from error
