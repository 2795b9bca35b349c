"""The state of versions on its way to the registry, behind their weights: one copy at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from podium.kit.telemetry import exemplar

from podium_trainer.adapters.versions import CheckpointStore
from podium_trainer.domain import metrics
from podium_trainer.learner.checkpoint import Checkpoint
from podium_trainer.learner.sharded import Shards

logger = logging.getLogger(__name__)


@dataclass
class _Held:
    """A copy of a job's state, and the task that stores it."""

    job_id: str
    opening: int
    checkpoint: Checkpoint
    task: asyncio.Task[None]

    @property
    def has_failed(self) -> bool:
        done = self.task.done()
        return done and (self.task.cancelled() or self.task.exception() is not None)


class StateKeeper:
    """Holds the copy of an open job's state until it is stored, however often that fails."""

    def __init__(self, versions: CheckpointStore) -> None:
        self._versions = versions
        self._opening = 0
        self._stored: tuple[int, int] | None = None
        self._held: _Held | None = None

    def open(self, version: int | None) -> None:
        """Another job is open, or the same one anew; from a version's state, or from nothing."""
        self._opening += 1
        self._stored = None if version is None else (self._opening, version)
        # Nobody will ask for it again. What is on its way goes on.
        if self._held is not None and self._held.has_failed:
            self._drop()

    @property
    def is_busy(self) -> bool:
        """Whether a copy is on its way."""
        return self._held is not None and not self._held.task.done()

    def is_stored(self, step: int) -> bool:
        """Whether the registry has the state of that step of the open job."""
        return self._stored == (self._opening, step)

    def stored(self, step: int) -> None:
        """The registry has it: it came with its weights."""
        self._stored = (self._opening, step)

    def holds(self, step: int) -> bool:
        """Whether a copy of that state is on its way, or could not be stored."""
        held = self._held
        return held is not None and (held.opening, held.checkpoint.step) == (self._opening, step)

    def has(self, step: int) -> bool:
        """Whether nobody needs to copy that state any more."""
        return self.is_stored(step) or self.holds(step)

    def begin(self, job_id: str, checkpoint: Checkpoint) -> None:
        """Begins to store a copy; what was before it must be `settled`."""
        self._drop()
        held = _Held(job_id, self._opening, checkpoint, self._start(job_id, checkpoint))
        self._held = held

    async def settled(self) -> None:
        """Returns when nothing is on its way, whatever became of it."""
        if self._held is not None:
            await asyncio.wait((self._held.task,))

    async def wait(self, again: Callable[[], Awaitable[None]]) -> None:
        """Returns when the copy that is held is stored; one that failed is tried again.

        Args:
            again: has the other processes store their parts again.

        Raises:
            PodiumError: what the registry refused it with.
        """
        held = self._held
        if held is None:
            return
        if held.has_failed:
            # An adapter is the first process's alone.
            if held.checkpoint.is_full:
                await again()
            held.task = self._start(held.job_id, held.checkpoint)
        await asyncio.shield(held.task)

    def _start(self, job_id: str, checkpoint: Checkpoint) -> asyncio.Task[None]:
        task = asyncio.create_task(self._store(job_id, checkpoint))
        task.add_done_callback(_read)
        return task

    async def _store(self, job_id: str, checkpoint: Checkpoint) -> None:
        start = time.perf_counter()
        try:
            await self._versions.add_state(job_id, checkpoint)
        except BaseException:
            metrics.CHECKPOINT_FAILURES.inc()
            raise
        metrics.STATE_SECONDS.observe(time.perf_counter() - start, exemplar())
        held = self._held
        if held is not None and held.checkpoint is checkpoint:
            self._stored = (held.opening, checkpoint.step)
            self._drop()

    def _drop(self) -> None:
        held, self._held = self._held, None
        if held is not None and isinstance(held.checkpoint.shards, Shards):
            held.checkpoint.shards.close()


def _read(task: asyncio.Task[None]) -> None:
    # Read, so that an error nobody waits for any more is not reported as forgotten.
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.warning("the state of a version could not be stored: %s", error)
