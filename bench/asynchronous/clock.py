"""A clock that is at the next timer at once, but stands while the database works.

So a run takes seconds instead of an hour, and its times do not depend on what else the machine
does: they are those of an engine, a trainer and a controller whose own work costs nothing.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from podium_controller.store import Database
from sqlalchemy.ext.asyncio import AsyncConnection


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self._selector = _Skipping(self)
        super().__init__(self._selector)
        self.now = 0.0
        self.working = 0
        """Who works outside of the loop's time."""

    def time(self) -> float:
        """Seconds since it began."""
        return self.now


class _Skipping(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._of = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        if self._of.working:
            return super().select(None)
        self._of.now += timeout
        return super().select(0)


@asynccontextmanager
async def standing() -> AsyncIterator[None]:
    """Inside, time stands."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.working += 1
    try:
        yield
    finally:
        loop.working -= 1


class StandingDatabase(Database):
    """A database whose work takes none of the loop's time."""

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """See `Database`."""
        async with standing(), super().read() as connection:
            yield connection

    @asynccontextmanager
    async def write(self, *, urgent: bool = False) -> AsyncIterator[AsyncConnection]:
        """See `Database`."""
        async with standing(), super().write(urgent=urgent) as connection:
            yield connection
