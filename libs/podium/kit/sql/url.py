"""A database's URL, as operators of databases and people write it."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from podium.core.errors import InvalidArgumentError, Violation

_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}


def database_url(text: str) -> sa.URL:
    """What `text` names, with the driver that Podium has.

    Raises:
        InvalidArgumentError: it is no URL of such a database; the message has no part of it but
            the driver's name, for any other may be of the password.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        url = None
    # Of an @ in a password the first ends it, and the rest is taken for a host or a port.
    if url is None or "@" in (url.host or ""):
        raise _violation(
            "cannot be read; allowed is postgresql://USER:PASSWORD@HOST:PORT/NAME, and of a user or"
            " a password that has one of @ : / ? # % its percent-encoding, such as %40 for @"
        )
    if url.drivername not in _DRIVERS:
        raise _violation(f"got {url.drivername}://; allowed is one of {', '.join(_DRIVERS)}")
    return url.set(drivername=_DRIVERS[url.drivername])


def _violation(words: str) -> InvalidArgumentError:
    return InvalidArgumentError(violations=[Violation("DATABASE_URL", words)])
