"""An event loop whose time is virtual and whose order of work follows from a seed.

When nothing is ready it is the time of the next timer at once. No file, no socket, no thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from heapq import heappop, heappush
from typing import Any

_START = 1_800_000_000.0
# How often, in pieces of work, it looks whether it has done too many.
_LOOK = 1000


class Process:
    """What dies, or is frozen, together: every task that was begun in its context."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self.tasks: list[asyncio.Task[Any]] = []
        self.held: list[_Handle] = []


PROCESS: ContextVar[Process] = ContextVar("process")


class StuckError(Exception):
    """Nothing is ready and no timer runs: whoever waits waits for ever."""


class _Handle(list[Any]):
    """Work to do: what to call, with what, and in which context.

    A list, for that is made without a call of Python, and there is one for every piece of work.
    """

    __slots__ = ()

    def cancel(self) -> None:
        self[0] = None


class VirtualLoop(asyncio.AbstractEventLoop):
    """See the module."""

    def __init__(self, seed: int = 0, *, shuffled: bool = True) -> None:
        """Of what is ready at the same time, a `shuffled` loop runs any first."""
        self._now = 0.0
        self._ready: list[_Handle] = []
        self._timers: list[tuple[float, int, _Handle]] = []
        self._frozen: set[Process] = set()
        self._scheduled = 0
        self._draw = random.Random(seed).random if shuffled else None
        self._world = contextvars.copy_context()
        self._points: list[tuple[int, Callable[[], None]]] = []
        self._next_point = _LOOK
        self.ran = 0
        """Pieces of work so far; between two of them every task is at an await."""
        self.errors: list[dict[str, Any]] = []
        """What nobody awaited."""

    # What asyncio asks of a loop.

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        # An empty context is false.
        within = contextvars.copy_context() if context is None else context
        handle = _Handle((callback, args, within))
        self._ready.append(handle)
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        within = contextvars.copy_context() if context is None else context
        handle = _Handle((callback, args, within))
        self._scheduled += 1
        heappush(self._timers, (when, self._scheduled, handle))
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Any = None
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        process = PROCESS.get(None) if context is None else context.get(PROCESS)
        if process is not None:
            process.tasks.append(task)
        return task

    # Every future asks, and `bool()` is false without a call of Python.
    get_debug = staticmethod(bool)

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context)

    # What a simulation asks of it.

    def world(self, delay: float, callback: Callable[[], Any]) -> None:
        """Calls outside of every process, which thus dies with none."""
        self._scheduled += 1
        handle = _Handle((callback, (), self._world))
        heappush(self._timers, (self._now + delay, self._scheduled, handle))

    def at(self, point: int, act: Callable[[], None]) -> None:
        """Acts when so many pieces of work are done."""
        self._points.append((point, act))
        self._points.sort(key=lambda each: each[0], reverse=True)
        self._next_point = self._points[-1][0]

    def spawn(self, process: Process, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begins a process."""
        context = self._world.copy()
        context.run(PROCESS.set, process)
        return self.create_task(coro, context=context)

    def kill(self, process: Process) -> None:
        """Ends a process. Its tasks are unwound, by when no call of theirs has an effect."""
        self.thaw(process)
        process.alive = False
        for task in process.tasks:
            if not task.done():
                task.cancel()

    def freeze(self, process: Process) -> None:
        """Has a process stand still."""
        process.frozen = True
        self._frozen.add(process)

    def thaw(self, process: Process) -> None:
        """Lets a frozen process go on."""
        process.frozen = False
        self._frozen.discard(process)
        self._ready += process.held
        process.held = []

    def run(self, is_over: Callable[[], bool], *, until: float, most: int) -> None:
        """Runs until it is over, as seen whenever nothing is ready.

        Raises:
            StuckError: it never will be.
            TimeoutError: it was not at the time `until`, or after so many pieces of work.
        """
        ready, draw, frozen = self._ready, self._draw, self._frozen
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            while ready or not is_over():
                if not ready:
                    self._advance(until)
                    continue
                if draw is None:
                    handle = ready.pop(0)
                elif len(ready) == 1:
                    handle = ready.pop()
                else:
                    index = int(draw() * len(ready))
                    handle, ready[index] = ready[index], ready[-1]
                    ready.pop()
                callback, args, context = handle
                if callback is None:
                    continue
                if frozen and (process := context.get(PROCESS)) in frozen:
                    process.held.append(handle)
                    continue
                context.run(callback, *args)
                self.ran += 1
                if self.ran >= self._next_point:
                    self._act()
                    if self.ran > most:
                        raise TimeoutError(f"not over after {most} pieces of work")
        finally:
            asyncio._set_running_loop(before)

    def _act(self) -> None:
        while self._points and self._points[-1][0] <= self.ran:
            self._points.pop()[1]()
        self._next_point = self._points[-1][0] if self._points else self.ran + _LOOK

    def _advance(self, until: float) -> None:
        timers = self._timers
        while timers and timers[0][2][0] is None:
            heappop(timers)
        if not timers:
            raise StuckError("nothing is ready, and no timer runs")
        now = timers[0][0]
        if now > self._now:
            self._now = now
        else:
            now = self._now
        if now > until:
            raise TimeoutError(f"not over after {until:g} seconds")
        while timers and timers[0][0] <= now:
            handle = heappop(timers)[2]
            if handle[0] is not None:
                self._ready.append(handle)


class VirtualTime:
    """Stands for the module `time` in the modules of the controller that read a clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.monotonic = self.perf_counter = loop.time

    def time(self) -> float:
        return _START + self._loop._now

    def time_ns(self) -> int:
        return int((_START + self._loop._now) * 1e9)

    def gmtime(self) -> None:
        return None

    def strftime(self, form: str, of: None) -> str:
        return "2027-01"
