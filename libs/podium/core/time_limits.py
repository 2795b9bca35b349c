"""Limits on working time: while what they bound is queued, they stand still.

async with time_limit(60):
    async with sandbox_places:  # takes its turn under `queued()`
        ...

Who waits for something shared, such as one of N places for a program, does it
under `queued()`. What others do there is not its own doing, and must not cost
it its time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar


class Clock:
    """Counts seconds down, while its work runs or while its work is queued."""

    def __init__(
        self,
        seconds: float,
        *,
        of_queue: bool = False,
        turned: Callable[[bool], None] = lambda queued: None,
    ) -> None:
        """`turned` is told when the work begins to be queued and when it no longer is."""
        self._left = seconds
        self._of_queue = of_queue
        self._turned = turned
        self._since: float | None = None if of_queue else time.monotonic()
        self._queues = 0
        self._open = True

    @property
    def runs(self) -> bool:
        """Whether the seconds become fewer now."""
        return self._since is not None

    def left(self) -> float:
        """Seconds; below 0 when they are over."""
        since = self._since
        return self._left if since is None else self._left - (time.monotonic() - since)

    def join_queue(self) -> None:
        """Some of the work is queued."""
        self._queues += 1
        if self._queues == 1:
            self._turn()

    def leave_queue(self) -> None:
        """It has what it waited for, or does not want it any more."""
        self._queues -= 1
        if not self._queues:
            self._turn()

    def limits_work(self) -> bool:
        """Whether it bounds what is not queued."""
        return self._open and not self._of_queue

    def close(self) -> None:
        """Its work is over; what is queued later, or still, is another's."""
        if self._queues:
            self._turned(False)
        self._open = False

    def _turn(self) -> None:
        if not self._open:
            return
        self._left = self.left()
        self._since = None if self.runs else time.monotonic()
        self._turned(bool(self._queues))


_clocks: ContextVar[tuple[Clock, ...]] = ContextVar("podium_clocks", default=())


@contextmanager
def queued() -> Iterator[None]:
    """The block waits for its turn at something shared. Of the event loop that the work is on."""
    clocks = _clocks.get()
    for clock in clocks:
        clock.join_queue()
    try:
        yield
    finally:
        for clock in clocks:
            clock.leave_queue()


def time_left() -> float:
    """Seconds of working time that whoever asks has before a limit ends it; may be infinite."""
    return min((c.left() for c in _clocks.get() if c.limits_work()), default=float("inf"))


@contextmanager
def clocked(clock: Clock) -> Iterator[Clock]:
    """The block, and what it starts, is the clock's work. Nothing ends it: see `time_limit`."""
    token = _clocks.set((*_clocks.get(), clock))
    try:
        yield clock
    finally:
        clock.close()
        _clocks.reset(token)


@asynccontextmanager
async def time_limit(
    seconds: float | None,
    *,
    of_queue: bool = False,
    turned: Callable[[bool], None] = lambda queued: None,
) -> AsyncIterator[asyncio.Timeout]:
    """Ends the block with TimeoutError after so many seconds of work; None for no limit.

    Args:
        of_queue: it is the time in queues that is bounded, all of them together, and no other.
        turned: told when the work begins to be queued and when it no longer is.
    """

    def turn(queued: bool) -> None:
        # One that has run out is over, whatever comes while the block ends.
        if not limit.expired():
            left = clock.left() if clock.runs else float("inf")
            limit.reschedule(None if left == float("inf") else loop.time() + left)
        turned(queued)

    loop = asyncio.get_running_loop()
    clock = Clock(float("inf") if seconds is None else seconds, of_queue=of_queue, turned=turn)
    async with asyncio.timeout(None if of_queue else seconds) as limit:
        with clocked(clock):
            yield limit
