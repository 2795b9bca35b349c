"""One database: connections, transactions and migrations, with our own errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from podium.core.backoff import Backoff
from podium.core.errors import UnavailableError
from podium.kit.sql.failures import busy, translated
from podium.kit.sql.url import database_url

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
        """Nothing is opened yet; a SQLite file's folder is made.

        Raises:
            InvalidArgumentError: as `database_url`.
        """
        parsed = database_url(url)
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        if self.is_sqlite and parsed.database and parsed.database != ":memory:":
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        self._engine = _engine(parsed)
        # Whoever is urgent does not wait until one of the others gives back a connection.
        self._urgent_engine = _engine(parsed, pool_size=1, max_overflow=0)
        # Waiting writers would each hold a connection and poll for SQLite's lock.
        self._writer = asyncio.Lock() if self.is_sqlite else None
        # Only its first is queued for `_writer`, so that an urgent one comes next.
        self._queue = asyncio.Lock()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads.

        Raises:
            PodiumError: as `translated`.
        """
        with translated():
            async with self._engine.connect() as connection:
                yield connection

    @asynccontextmanager
    async def write(self, *, urgent: bool = False) -> AsyncIterator[AsyncConnection]:
        """A transaction that commits when the block ends, and not when it raises.

        Args:
            urgent: goes before the writers that wait, and one at a time; for what is
                worth nothing when it comes late, as a lease's renewal is.

        Raises:
            PodiumError: as `translated`; DATABASE_BUSY, too, when it is locked for too long.
        """
        with translated():
            engine = self._urgent_engine if urgent else self._engine
            async with self._writing(urgent), engine.connect() as connection:
                connection = await connection.execution_options(**{_WRITE: True})
                async with connection.begin():
                    yield connection

    @asynccontextmanager
    async def _writing(self, urgent: bool) -> AsyncIterator[None]:
        if self._writer is None:
            yield
            return
        async with AsyncExitStack() as held:
            try:
                # Before Python 3.12 wait_for loses a cancellation that comes with the lock.
                async with asyncio.timeout(_LOCK_SECONDS):
                    if not urgent:
                        await held.enter_async_context(self._queue)
                    await held.enter_async_context(self._writer)
            except TimeoutError as error:
                raise busy() from error
            yield

    async def reachable(self, within_seconds: float) -> None:
        """Returns once the database lets us in.

        What is started together with its database would else end, and be started again and
        again, until that has started.

        Raises:
            UnavailableError: DATABASE_UNAVAILABLE: it did not in that time; the log says why.
        """
        clock = asyncio.get_running_loop()
        end = clock.time() + within_seconds
        backoff = Backoff(0.5, 5)
        while True:
            try:
                async with asyncio.timeout_at(end), self.read():
                    return
            except (UnavailableError, TimeoutError) as error:
                left = end - clock.time()
                if left <= 0:
                    raise UnavailableError(
                        f"the database could not be reached in {within_seconds:g} s",
                        reason="DATABASE_UNAVAILABLE",
                    ) from error
                await asyncio.sleep(min(backoff.next(), left))

    async def migrate(self, scripts: Path) -> None:
        """Brings the schema to the newest revision in an Alembic folder.

        Replicas that start together wait for each other.

        Raises:
            FailedPreconditionError: as `upgrade`: it is a newer program's, or another service's.
            PodiumError: as `translated`.
        """
        # Imported here, as Alembic is by it: who migrates nothing need not wait for it.
        from podium.kit.sql.upgrade import upgrade

        async with self.write() as connection:
            if not self.is_sqlite:
                await connection.execute(
                    sa.text("select pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK}
                )
            await connection.run_sync(upgrade, scripts)

    async def close(self) -> None:
        """Closes every connection."""
        await asyncio.shield(self._engine.dispose())
        await asyncio.shield(self._urgent_engine.dispose())


def _engine(url: sa.URL, **options: Any) -> AsyncEngine:
    # Errors are logged; what they would say of a statement's values may be a conversation.
    options["hide_parameters"] = True
    if url.get_backend_name() != "sqlite":
        # One is a connection's, and behind a pooler the next transaction may have another.
        options["connect_args"] = {"prepare_threshold": None}
        return create_async_engine(url, pool_pre_ping=True, **options)
    options["connect_args"] = {"timeout": _LOCK_SECONDS}
    engine = create_async_engine(url, pool_pre_ping=True, **options)
    sa.event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    sa.event.listen(engine.sync_engine, "begin", _begin_sqlite)
    sa.event.listen(engine.sync_engine, "invalidate", _roll_back_sqlite)
    return engine


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
