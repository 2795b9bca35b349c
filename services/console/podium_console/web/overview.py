"""What goes on: once as `/status`, and told to pages as it changes."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from podium_console.adapters import caller
from podium_console.domain.status import Overview
from podium_console.web import arguments, replies
from podium_console.web.arguments import installation


class Shared:
    """One question for all who ask it at once with the same token."""

    def __init__(self, seconds: float) -> None:
        """An answer is good for so many seconds."""
        self._seconds = seconds
        self._running: dict[str, asyncio.Task[Overview]] = {}
        self._known: dict[str, tuple[float, Overview]] = {}

    async def get(self, make: Callable[[], Awaitable[Overview]]) -> Overview:
        """The answer; what `make` raises is raised to all who wait."""
        key = hashlib.sha256(caller.token().encode()).hexdigest()
        now = time.monotonic()
        self._known = {k: v for k, v in self._known.items() if now - v[0] < self._seconds}
        if key in self._known:
            return self._known[key][1]
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.ensure_future(make())
            task.add_done_callback(lambda _: self._running.pop(key, None))
        # One who goes away does not end it for the others.
        found = await asyncio.shield(task)
        self._known[key] = (time.monotonic(), found)
        return found


async def status(request: Request) -> Response:
    """`GET /status`."""
    return JSONResponse((await _overview(request)).status())


async def live(request: Request) -> Response:
    """The counts and the jobs that have not ended, whenever they change."""
    seconds = arguments.settings(request).refresh_seconds
    first = await _overview(request)

    async def source() -> AsyncIterator[bytes]:
        told = replies.event("live", first.live())
        yield told
        while True:
            await asyncio.sleep(seconds)
            now = replies.event("live", (await _overview(request)).live())
            if now != told:
                yield now
                told = now

    return replies.event_stream(request, source())


async def _overview(request: Request) -> Overview:
    shared: Shared = request.app.state.shared
    return await shared.get(installation(request).overview)
