"""The running event loop's clock, which a test moves on: nobody waits for a timeout to come."""

from __future__ import annotations

import asyncio


class LoopClock:
    """Of the loop that runs when it is made; that loop's timers count by it from then on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ahead = 0.0
        real = self._loop.time
        self._loop.time = lambda: real() + self._ahead  # type: ignore[method-assign]

    def advance(self, seconds: float) -> None:
        """What was to happen within so many seconds happens now. From any thread."""
        self._loop.call_soon_threadsafe(self._move, seconds)

    def _move(self, seconds: float) -> None:
        self._ahead += seconds
