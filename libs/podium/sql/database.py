"""One database: connections, transactions and migrations, with our own errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from podium.core.errors import ResourceExhaustedError, UnavailableError

logger = logging.getLogger(__name__)

_WRITE = "podium_write"
_LOCK_SECONDS = 30
_MIGRATION_LOCK = 0x706F6469756D


class Database:
    """Transactions over SQLite (`sqlite+aiosqlite`) or PostgreSQL (`postgresql+psycopg`).

    A write transaction is serial on SQLite (BEGIN IMMEDIATE) and READ
    COMMITTED on PostgreSQL: lock the rows that a decision rests on with
    `select(...).with_for_update()`, which SQLite does not need and ignores.
    """

    def __init__(self, url: str) -> None:
        """Nothing is opened yet; a SQLite file's folder is made."""
        parsed = make_url(url)
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        options: dict[str, Any] = {"pool_pre_ping": True}
        if self.is_sqlite:
            if parsed.database and parsed.database != ":memory:":
                Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
            options["connect_args"] = {"timeout": _LOCK_SECONDS}
        self._engine: AsyncEngine = create_async_engine(parsed, **options)
        # Waiting writers would each hold a connection and poll for SQLite's lock.
        self._writer = asyncio.Lock() if self.is_sqlite else None
        if self.is_sqlite:
            sa.event.listen(self._engine.sync_engine, "connect", _prepare_sqlite)
            sa.event.listen(self._engine.sync_engine, "begin", _begin_sqlite)
            sa.event.listen(self._engine.sync_engine, "invalidate", _roll_back_sqlite)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads.

        Raises:
            UnavailableError: the database cannot be reached.
        """
        with _translated():
            async with self._engine.connect() as connection:
                yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that commits when the block ends, and not when it raises.

        Raises:
            UnavailableError: the database cannot be reached, or is locked for
                too long.
            ResourceExhaustedError: STORAGE_FULL.
        """
        with _translated():
            async with self._turn(), self._engine.connect() as connection:
                connection = await connection.execution_options(**{_WRITE: True})
                async with connection.begin():
                    yield connection

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        if self._writer is None:
            yield
            return
        try:
            # Before Python 3.12 wait_for loses a cancellation that comes with the lock.
            async with asyncio.timeout(_LOCK_SECONDS):
                await self._writer.acquire()
        except TimeoutError as error:
            raise _busy() from error
        try:
            yield
        finally:
            self._writer.release()

    async def migrate(self, scripts: Path) -> None:
        """Brings the schema to the newest revision in an Alembic folder.

        Replicas that start together wait for each other.
        """
        config = Config()
        config.set_main_option("script_location", str(scripts))

        def upgrade(connection: sa.Connection) -> None:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

        async with self.write() as connection:
            if not self.is_sqlite:
                await connection.execute(
                    sa.text("select pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK}
                )
            await connection.run_sync(upgrade)

    async def close(self) -> None:
        """Closes every connection."""
        await asyncio.shield(self._engine.dispose())


class _translated:  # noqa: N801 - reads as a function
    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PoolTimeoutError):
            raise _busy() from error
        if not isinstance(error, DBAPIError):
            return
        text = str(error.orig).lower()
        if "disk is full" in text or "no space left" in text:
            raise ResourceExhaustedError(
                "the database's disk is full", reason="STORAGE_FULL"
            ) from error
        if isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated:
            logger.warning("database: %s", error.orig)
            raise UnavailableError(
                "the database cannot be reached", reason="DATABASE_UNAVAILABLE"
            ) from error


def _busy() -> UnavailableError:
    return UnavailableError("the database is busy; try again", reason="DATABASE_BUSY")


def _prepare_sqlite(connection: Any, record: object) -> None:
    # The driver's own implicit BEGIN would come too late for BEGIN IMMEDIATE.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: sa.Connection) -> None:
    write = connection.get_execution_options().get(_WRITE)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _roll_back_sqlite(connection: Any, record: object, error: object) -> None:
    # What was cancelled is closed at once, but SQLite keeps a closed connection's lock until the
    # last of its cursors is collected as garbage, and the cancellation's traceback holds one.
    connection.run_async(lambda driver: asyncio.shield(driver.rollback()))
