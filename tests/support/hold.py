"""A point of a fleet's work at which a test stops it."""

from __future__ import annotations

import asyncio


class Hold:
    """The first time that a point is reached; the call that did waits there for `release`."""

    def __init__(self, point: str, about: str) -> None:
        """`about` is how the name of what it is about ends."""
        self._point = point
        self._about = about
        self._reached = asyncio.Event()
        self._released = asyncio.Event()

    async def __call__(self, point: str, about: str) -> None:
        wanted = point == self._point and about.endswith(self._about)
        if wanted and not self._reached.is_set():
            self._reached.set()
            await self._released.wait()

    async def reached(self) -> None:
        async with asyncio.timeout(200):
            await self._reached.wait()

    def release(self) -> None:
        self._released.set()
