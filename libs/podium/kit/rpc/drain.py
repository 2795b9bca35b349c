"""Ends at once, on a drain, the streams that would never end by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from podium.kit.rpc.call import ServerCall


class Drain:
    """Knows the running watches.

    Their clients resume with the last sequence seen; to wait for them would
    only spend the grace that the other calls need.
    """

    def __init__(self) -> None:
        self._watches: dict[asyncio.Task[object], ServerCall] = {}
        self._begun = False

    @asynccontextmanager
    async def layer(self, call: ServerCall) -> AsyncIterator[None]:
        """Registers a watch while it runs."""
        task = asyncio.current_task()
        if task is None or not call.watching:
            yield
            return
        self._watches[task] = call
        try:
            yield
        finally:
            del self._watches[task]

    def begin(self) -> None:
        """Cuts every watch with UNAVAILABLE."""
        for task, call in self._watches.items():
            call.draining = True
            task.cancel()
