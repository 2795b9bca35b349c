"""How many groups a job may collect at once, and what that follows from while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from podium.core.errors import PodiumError
from podium.core.tasks import cancel_and_wait
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.types.v1 import spec_pb2

from podium_controller.domain import metrics
from podium_controller.domain.concurrency import ConcurrencyLimit, pool_load
from podium_controller.pools.pools import Pool
from podium_controller.training.reporter import Reporter

_LOOK_SECONDS = 2.0
_ASK_SECONDS = 5.0
# Answers without a word of the queue, from the first on, after which none is awaited.
_SILENT = 5


class Concurrency:
    """Of one job: a number that stays, or one that its pool's engines bound."""

    def __init__(
        self,
        job_id: str,
        rollout: spec_pb2.RolloutSpec,
        pool: Pool,
        reporter: Reporter,
    ) -> None:
        self._job_id = job_id
        self._ceiling = rollout.max_concurrent_groups
        self._pool = pool
        self._reporter = reporter
        self._limit: ConcurrencyLimit | None = None
        if rollout.adaptive_concurrency:
            self._limit = ConcurrencyLimit(rollout.groups_per_step, self._ceiling)
        self._silent = 0
        """Answers that told nothing; -1 once one has."""
        self._watching: asyncio.Task[None] | None = None

    @property
    def groups(self) -> int:
        """How many."""
        return self._ceiling if self._limit is None else self._limit.groups

    @property
    def adapted(self) -> int | None:
        """The same; None where it never changes."""
        return None if self._limit is None else self._limit.groups

    def show(self, collected: int) -> None:
        """Tells Prometheus the number, and how many groups there are."""
        metrics.CONCURRENT_GROUPS.labels(self._job_id).set(collected)
        metrics.CONCURRENT_GROUPS_LIMIT.labels(self._job_id).set(self.groups)

    def watch(self, collected: Callable[[], int], changed: Callable[[], None]) -> None:
        """Follows the pool from now on, if the job wants it and it does not yet.

        Args:
            collected: how many groups of the job have come to their turn at the pool.
            changed: called when the number is another one.

        Raises:
            Exception: what ended the watch since the last call, which only a defect can.
        """
        if self._limit is None:
            return
        if self._watching is None:
            self._watching = asyncio.create_task(
                self._watch(self._limit, collected, changed), name="watch-queue"
            )
        elif self._watching.done() and not self._watching.cancelled():
            self._watching.result()

    async def close(self) -> None:
        """The number is of no use any more."""
        if self._watching is not None:
            await cancel_and_wait(self._watching)

    async def _watch(
        self, limit: ConcurrencyLimit, collected: Callable[[], int], changed: Callable[[], None]
    ) -> None:
        while True:
            before = limit.groups
            # Of a pool that is away nothing is known, and what is underway there meets it too.
            with suppress(PodiumError, TimeoutError):
                async with asyncio.timeout(_ASK_SECONDS):
                    said = await self._pool.inference.loads()
                await self._hear(limit, said, collected())
            if limit.groups != before:
                changed()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _hear(
        self,
        limit: ConcurrencyLimit,
        said: Sequence[inference_pb.EngineLoad | None],
        collected: int,
    ) -> None:
        load = pool_load(said)
        if load is not None:
            self._silent = -1
            limit.look(load, collected, self._pool.fair_share.part(self._job_id))
        elif self._silent >= 0:
            self._silent += 1
            if self._silent == _SILENT:
                limit.lift()
                await self._reporter.warn(
                    "the pool's engines do not say how long their queue is, so that"
                    " rollout.adaptive_concurrency has no effect:"
                    f" {limit.groups} groups are collected at once (max_concurrent_groups)",
                    0,
                )
