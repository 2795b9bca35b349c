"""Who computes next at a trainer that several jobs share.

Round robin over projects, then over the jobs of a project: whoever waits and computed longest
ago. A project with ten jobs computes no more often than one with one job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from podium.core.errors import RequestCancelledError

_Last = tuple[int, bool]
"""How many had held the lock when one held it last, and whether it ever did: who is new comes
behind those that waited before it, and before the one that holds the lock now."""


@dataclass(eq=False)
class _Waiter:
    project: str
    job: str
    called: asyncio.Event = field(default_factory=asyncio.Event)


class FairLock:
    """A lock for calls of jobs. Used from one event loop."""

    def __init__(self) -> None:
        self._holder: _Waiter | None = None
        self._waiting: list[_Waiter] = []
        self._holds = 0
        self._projects: dict[str, _Last] = {}
        self._jobs: dict[str, dict[str, _Last]] = {}
        """By project."""

    @asynccontextmanager
    async def hold(
        self, project: str, job: str, given_up: asyncio.Event | None = None
    ) -> AsyncIterator[None]:
        """Waits until the lock is the job's, as long as the block lasts.

        Raises:
            RequestCancelledError: `given_up` was set while it waited.
        """
        self._projects.setdefault(project, (self._holds, False))
        self._jobs.setdefault(project, {}).setdefault(job, (self._holds, False))
        waiter = _Waiter(project, job)
        self._waiting.append(waiter)
        self._call_next()
        try:
            if not await _called(waiter, given_up):
                raise RequestCancelledError("given up before the trainer was free")
            yield
        finally:
            if self._holder is waiter:
                self._holder = None
            else:
                self._waiting.remove(waiter)
            self._call_next()

    def forget(self, project: str, job: str) -> None:
        """The job is closed: when it comes again, it is new."""
        jobs = self._jobs.get(project, {})
        jobs.pop(job, None)
        if not jobs:
            self._jobs.pop(project, None)
            self._projects.pop(project, None)

    def _call_next(self) -> None:
        if self._holder is not None or not self._waiting:
            return
        # Of equals the first in the list.
        holder = min(self._waiting, key=self._last)
        self._waiting.remove(holder)
        self._holds += 1
        self._projects[holder.project] = (self._holds, True)
        self._jobs.setdefault(holder.project, {})[holder.job] = (self._holds, True)
        self._holder = holder
        holder.called.set()

    def _last(self, waiter: _Waiter) -> tuple[_Last, _Last]:
        never = (self._holds, False)
        jobs = self._jobs.get(waiter.project, {})
        return self._projects.get(waiter.project, never), jobs.get(waiter.job, never)


async def _called(waiter: _Waiter, given_up: asyncio.Event | None) -> bool:
    """Whether the lock came, and not `given_up` before it."""
    if given_up is None:
        await waiter.called.wait()
        return True
    events = [asyncio.create_task(event.wait()) for event in (waiter.called, given_up)]
    try:
        await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for event in events:
            event.cancel()
    return waiter.called.is_set()
