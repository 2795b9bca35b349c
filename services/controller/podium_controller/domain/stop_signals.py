"""What people asked of a running job, and waits that end when they do."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from podium.core.tasks import cancel_and_wait

from podium_controller.domain.errors import PauseRequestedError

T = TypeVar("T")


class StopSignals:
    """The requests that a run has to obey. The scheduler sets them, the loop looks."""

    def __init__(self) -> None:
        self.pause = asyncio.Event()
        """Stop after the step; may be taken back."""
        self.cancel = asyncio.Event()
        """Stop now, for good."""

    def check_pause(self) -> None:
        """Call where a pause may take effect.

        Raises:
            PauseRequestedError: the job is to pause.
        """
        if self.pause.is_set():
            raise PauseRequestedError

    async def unless_paused(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work that a pause may cut short.

        Raises:
            PauseRequestedError: the pause came first; the work is cancelled.
        """
        task = asyncio.create_task(work)
        pause = asyncio.create_task(self.pause.wait())
        try:
            await asyncio.wait((task, pause), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return await task
            raise PauseRequestedError
        finally:
            await cancel_and_wait(task, pause)
