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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType


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


class time_limit:  # noqa: N801 - reads as `asyncio.timeout` does
    """Ends the block with TimeoutError after so many seconds of work; None for no limit."""

    def __init__(
        self,
        seconds: float | None,
        *,
        of_queue: bool = False,
        turned: Callable[[bool], None] = lambda queued: None,
    ) -> None:
        """`async with` makes it an `asyncio.Timeout`.

        Args:
            of_queue: it is the time in queues that is bounded, all of them together, and no other.
            turned: told when the work begins to be queued and when it no longer is.
        """
        self._seconds = seconds
        self._of_queue = of_queue
        self._turned = turned

    # By hand: a generator a limit costs a turn of an episode a twentieth of its time.
    async def __aenter__(self) -> asyncio.Timeout:
        seconds = self._seconds
        self._clock = Clock(
            float("inf") if seconds is None else seconds,
            of_queue=self._of_queue,
            turned=self._turn,
        )
        self._limit = asyncio.timeout(None if self._of_queue else seconds)
        await self._limit.__aenter__()
        self._token = _clocks.set((*_clocks.get(), self._clock))
        return self._limit

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._clock.close()
        _clocks.reset(self._token)
        # Raises, and never says that an exception is none.
        await self._limit.__aexit__(kind, error, trace)

    def _turn(self, queued: bool) -> None:
        # One that has run out is over, whatever comes while the block ends.
        if not self._limit.expired():
            left = self._clock.left() if self._clock.runs else float("inf")
            now = asyncio.get_running_loop().time()
            self._limit.reschedule(None if left == float("inf") else now + left)
        self._turned(queued)
