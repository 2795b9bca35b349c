"""Jobs that nobody calls leave memory."""

from __future__ import annotations

import asyncio

from podium_trainer.worker import Worker

_SHORTEST_SECONDS = 1.0


async def stow_idle_jobs(worker: Worker, seconds: float) -> None:
    """Stows jobs that had no call for so long, until it is cancelled; 0 for never."""
    # A lone job's trainer is there for it alone.
    while seconds and worker.max_jobs > 1:
        await asyncio.sleep(max(_SHORTEST_SECONDS, seconds / 4))
        await worker.stow_idle(seconds)
