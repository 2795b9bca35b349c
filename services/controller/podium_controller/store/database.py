"""Engine, transactions and migrations, for SQLite and PostgreSQL alike."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import alembic.command
from alembic.config import Config
from podium.core.errors import InvalidArgumentError, Violation
from sqlalchemy import Connection, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from podium_controller.errors import DatabaseUnavailableError

_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
_WRITES = "podium_writes"
_BUSY_MS = 30_000
# Any number will do, if it is this controller's alone.
_MIGRATION_LOCK = 0x706F6469756D01


def _parse(text_url: str) -> URL:
    try:
        url = make_url(text_url)
        return url.set(drivername=_DRIVERS[url.drivername])
    except (ArgumentError, KeyError):
        raise InvalidArgumentError(
            violations=[
                Violation(
                    "database_url",
                    f"got {text_url.partition(':')[0]!r} as its scheme; allowed are"
                    " sqlite:///path and postgresql://user@host/name",
                )
            ]
        ) from None


class Database:
    """Opens transactions. Every failure to reach it is a DatabaseUnavailableError."""

    def __init__(self, url: str) -> None:
        """Nothing is opened yet.

        Raises:
            InvalidArgumentError: the URL is of no database that is supported.
        """
        parsed = _parse(url)
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        if self.is_sqlite and parsed.database:
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        options: dict[str, Any] = {} if self.is_sqlite else {"pool_pre_ping": True}
        self._engine = create_async_engine(parsed, **options)
        if self.is_sqlite:
            event.listen(self._engine.sync_engine, "connect", _prepare_sqlite)
            event.listen(self._engine.sync_engine, "begin", _begin_sqlite)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads."""
        with _errors():
            async with self._engine.connect() as connection, connection.begin():
                yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that writes; it commits when the block ends well.

        On SQLite writers go one after the other from here on, on PostgreSQL
        from their first row lock on.
        """
        with _errors():
            async with self._engine.connect() as connection:
                await connection.execution_options(**{_WRITES: True})
                async with connection.begin():
                    yield connection

    async def migrate(self) -> None:
        """Brings the schema to the newest version; safe when several start at once."""
        async with self.write() as connection:
            if not self.is_sqlite:
                await connection.execute(
                    text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK}
                )
            await connection.run_sync(_upgrade)

    async def close(self) -> None:
        """Closes every connection."""
        await self._engine.dispose()


def migration_config(connection: Connection) -> Config:
    """Alembic's configuration over a connection that has a transaction open."""
    config = Config()
    config.set_main_option(
        "script_location", str(Path(__file__).resolve().parents[1] / "migrations")
    )
    config.attributes["connection"] = connection
    return config


def _upgrade(connection: Connection) -> None:
    alembic.command.upgrade(migration_config(connection), "head")


def _prepare_sqlite(connection: Any, _: object) -> None:
    # The driver would begin transactions by itself, and only before writes.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        "synchronous=NORMAL",
        "foreign_keys=ON",
        f"busy_timeout={_BUSY_MS}",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A read that turns into a write fails at once when another wrote in
    # between; a write that says so first waits for its turn.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def _errors() -> Iterator[None]:
    """Maps what the driver raises when there is no database to talk to."""
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeoutError) as error:
        raise _unavailable() from error
    except DBAPIError as error:
        if not error.connection_invalidated:
            raise
        raise _unavailable() from error


def _unavailable() -> DatabaseUnavailableError:
    return DatabaseUnavailableError(
        "the controller's database cannot be reached", metadata={"peer": "database"}
    )
