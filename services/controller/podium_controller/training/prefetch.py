"""Collects ahead of training, as far as staleness allows."""

from __future__ import annotations

import asyncio

from podium.core.tasks import cancel_and_wait

from podium_controller.training.collector import Collector, StepBatch


class Prefetch:
    """Batches of coming steps.

    Step s trains the weights of version s - 1. While version v is served,
    what is sampled for step s is s - 1 - v versions old when it trains; so
    collection may run ahead to step v + 1 + max_staleness and no further.
    With max_staleness 0 that is the next step alone.
    """

    def __init__(self, collector: Collector, last_step: int, max_staleness: int) -> None:
        self._collector = collector
        self._last_step = last_step
        self._max_staleness = max_staleness
        self._batches: dict[int, asyncio.Task[StepBatch]] = {}
        self._begun = 0

    def advance(self, version: int) -> None:
        """Version `version` is served: begins every step that this allows."""
        first = max(self._begun, version) + 1
        furthest = min(version + 1 + self._max_staleness, self._last_step)
        for step in range(first, furthest + 1):
            self._batches[step] = asyncio.create_task(
                self._collector.collect(step), name=f"collect-step-{step}"
            )
            self._begun = step

    def is_ready(self, step: int) -> bool:
        """Whether `take` would not have to wait."""
        return self._batches[step].done()

    async def take(self, step: int) -> StepBatch:
        """The batch of a step that was begun, when it is there."""
        self._collector.foreground_step = step
        return await self._batches.pop(step)

    async def close(self) -> None:
        """Ends what is being collected; stored groups stay stored."""
        tasks = list(self._batches.values())
        self._batches.clear()
        await cancel_and_wait(*tasks)
        for task in tasks:
            if not task.cancelled() and task.exception() is None:
                task.result().span.end()
