"""A trainer that a cluster must place first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.waits import OnWait, Wait


class PlacingTrainer:
    """See `ports.Trainer`: the fleet's, which a test places when it likes."""

    def __init__(self, trainer: Any, waits: Sequence[Wait]) -> None:
        """`waits` are told one after the other while it is not placed."""
        self._trainer = trainer
        self._waits = waits
        self.placed = asyncio.Event()
        self.hopeless: JobFailedError | None = None
        self.asked = 0
        self.closed: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainer, name)

    async def ready(self, on_wait: OnWait) -> bool:
        self.asked += 1
        if not self.placed.is_set():
            for wait in self._waits:
                await on_wait(wait)
            await self.placed.wait()
        if self.hopeless is not None:
            raise self.hopeless
        return False

    async def close(self, job_id: str, seconds: float | None = None) -> None:
        self.closed.append(job_id)
        await self._trainer.close(job_id, seconds)
