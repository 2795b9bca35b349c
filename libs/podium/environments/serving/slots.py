"""How many sessions a server has at once."""

from __future__ import annotations

import asyncio

from podium.core.errors import ResourceExhaustedError


class SessionSlots:
    """A bounded number of slots, given first come, first served."""

    def __init__(self, count: int) -> None:
        """`count` 0 means no limit."""
        self._count = count
        self._free = asyncio.Semaphore(count)
        self._taken = 0
        self._waiting = 0

    @property
    def credits(self) -> int | None:
        """How many more would be given at once; None for no limit."""
        return max(0, self._count - self._taken - self._waiting) if self._count else None

    async def take(self, wait_seconds: float) -> None:
        """Takes one.

        Raises:
            ResourceExhaustedError: none came free in time.
        """
        if self._count:
            self._waiting += 1
            try:
                # Not even a free one could be taken within 0 seconds.
                if self._free.locked():
                    async with asyncio.timeout(wait_seconds):
                        await self._free.acquire()
                else:
                    await self._free.acquire()
            except TimeoutError:
                raise ResourceExhaustedError(
                    f"all {self._count} sessions are taken, for {wait_seconds:g} s by now",
                    reason="NO_SESSION",
                    metadata={"max_sessions": str(self._count)},
                ) from None
            finally:
                self._waiting -= 1
        self._taken += 1

    def give_back(self) -> None:
        """Gives one back."""
        self._taken -= 1
        if self._count:
            self._free.release()
