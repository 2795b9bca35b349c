"""Work that goes on when its caller goes away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ShieldedTasks:
    """What was begun is ended, whoever still waits for it."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for `work`, which goes on when the waiting is cancelled."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def ended(self) -> None:
        """Returns when all that runs now has ended, whatever became of it."""
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        # Read, so that an error nobody waits for any more is not reported as forgotten.
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.debug("call ended with %s", error)
