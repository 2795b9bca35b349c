"""What databases are sent, for tests of how much that is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa


@contextmanager
def statements() -> Iterator[list[tuple[str, object]]]:
    """Those that any database is sent inside, with their values."""
    sent: list[tuple[str, object]] = []

    def note(_c: object, _k: object, statement: str, values: object, *_: object) -> None:
        sent.append((statement, values))

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
