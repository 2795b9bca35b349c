"""How many sessions to ask an environment's server for at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from podium.environment.v1 import environment_service_pb2 as pb


class Credits:
    """What one server said that it would take; the rest of our opens wait here.

    One open more than that is sent: it waits there, first come, first served
    among all clients, and its answer brings the news.
    """

    def __init__(self) -> None:
        """Nothing is known: one open is sent, and its answer says more."""
        self._credits: int | None = 0
        self._asking = 0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def spend(self) -> AsyncIterator[None]:
        """Waits until an open may be sent; the block is to send it and await its answer."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._credits is None or self._asking <= self._credits
            )
            self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1
            await self._tell()

    async def learn(self, response: pb.SessionResponse) -> None:
        """Any answer of the server says how many more it would take."""
        self._credits = response.credits if response.HasField("credits") else None
        await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
