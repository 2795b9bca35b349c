"""What a database's errors mean, as our own."""

from __future__ import annotations

import logging
from types import TracebackType

from sqlalchemy.exc import DataError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from podium.core.errors import (
    InvalidArgumentError,
    PodiumError,
    ResourceExhaustedError,
    UnavailableError,
)

logger = logging.getLogger(__name__)

# PostgreSQL's SQLSTATEs, and beginnings of SQLite's names.
_READ_ONLY = ("25006", "SQLITE_READONLY")
_FORBIDDEN = ("42501", "SQLITE_PERM", "SQLITE_AUTH")
_DAMAGED = ("XX001", "XX002", "SQLITE_CORRUPT", "SQLITE_NOTADB")


class translated:  # noqa: N801 - reads as a function
    """Inside, what the driver raises is raised as one of our errors, and its words are logged.

    Raises:
        UnavailableError: DATABASE_UNAVAILABLE: it is away; DATABASE_BUSY; DATABASE_READ_ONLY;
            DATABASE_FORBIDDEN: our user lacks a right; DATABASE_DAMAGED. None is for the caller
            to mend, and each may be over when they call again.
        ResourceExhaustedError: STORAGE_FULL.
        InvalidArgumentError: NOT_STORABLE: a value that no column holds.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, PoolTimeoutError):
            raise busy() from error
        if isinstance(error, DBAPIError) and (ours := _ours(error)) is not None:
            raise ours from error


def busy() -> UnavailableError:
    """For whoever waited too long for their turn."""
    return UnavailableError("the database is busy; try again", reason="DATABASE_BUSY")


def _ours(error: DBAPIError) -> PodiumError | None:
    """None for what is a defect of the statement."""
    words = str(error.orig)
    if "disk is full" in words.lower() or "no space left" in words.lower():
        return ResourceExhaustedError("the database's disk is full", reason="STORAGE_FULL")
    found = _by_code(_code(error))
    if found is None and isinstance(error, DataError):
        # The contract's rules should have refused it, and would have named its field.
        text = "a text or number of the request cannot be stored"
        found = InvalidArgumentError(text, reason="NOT_STORABLE")
    if found is None and (
        isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated
    ):
        text = "the database cannot be reached"
        found = UnavailableError(text, reason="DATABASE_UNAVAILABLE")
    if found is not None:
        logger.warning("database: %s", words)
    return found


def _code(error: DBAPIError) -> str:
    told = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "sqlite_errorname", None)
    return str(told or "")


def _by_code(code: str) -> PodiumError | None:
    if code.startswith(_READ_ONLY):
        return UnavailableError(
            "the database takes no writes: it is read-only, as a standby is, a server whose disk"
            " is nearly full, or a file that its user may only read",
            reason="DATABASE_READ_ONLY",
        )
    if code.startswith(_FORBIDDEN):
        return UnavailableError(
            "the database refuses its user a right; the service's log has its words",
            reason="DATABASE_FORBIDDEN",
        )
    if code.startswith(_DAMAGED):
        return UnavailableError(
            "the database is damaged; restore it from a backup", reason="DATABASE_DAMAGED"
        )
    return None
