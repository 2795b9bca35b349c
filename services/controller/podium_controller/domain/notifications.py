"""Wakes whoever waits for news of a job in this process."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Notifications:
    """One event a job: every waiter wakes at once when the job has news."""

    def __init__(self) -> None:
        self._news: dict[str, asyncio.Event] = {}

    def ticket(self, job_id: str) -> asyncio.Event:
        """Take one, then read, then wait for it: nothing that comes in between is missed."""
        return self._news.setdefault(job_id, asyncio.Event())

    def notify(self, job_id: str) -> None:
        """Wakes those who hold a ticket."""
        event = self._news.pop(job_id, None)
        if event is not None:
            event.set()

    async def wait(self, ticket: asyncio.Event, seconds: float) -> None:
        """Returns at news, or after so many seconds: another replica's news do not come here."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await ticket.wait()
