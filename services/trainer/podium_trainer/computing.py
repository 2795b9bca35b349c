"""Where sessions compute: one at a time in a thread of its own, the others parked."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

import torch
from podium.kit.telemetry import exemplar

from podium_trainer.domain import metrics
from podium_trainer.domain.fair_lock import FairLock
from podium_trainer.learner import gpu
from podium_trainer.learner.session import Session

T = TypeVar("T")


class Computing:
    """One session is live: its tensors are on the device, its random state in torch's generator.

    A session waits until it may be made, or take a step. What is parked is copied while
    another computes, so that no weights wait to be published.
    """

    def __init__(self, threads: int) -> None:
        """`threads` of one matrix product; 0 for one a core."""
        self.lock = FairLock()
        self._live: Session | None = None
        self._placing = asyncio.Lock()
        """Held while sessions are parked, made live or copied."""
        self._executor = ThreadPoolExecutor(1, "compute", initializer=lambda: _use(threads))
        self._copier = ThreadPoolExecutor(1, "copy", initializer=lambda: _use(threads))

    async def run(self, work: Callable[[], T]) -> T:
        """Does `work` in the thread."""
        return await _in(self._executor, work)

    @asynccontextmanager
    async def make_live(
        self,
        project: str,
        job_id: str,
        session: Session | None,
        given_up: asyncio.Event,
    ) -> AsyncIterator[None]:
        """Waits for the lock and makes the job's session live; None to make one, see `made`.

        Raises:
            RequestCancelledError: `given_up` was set while it waited.
        """
        start = time.perf_counter()
        async with self.lock.hold(project, job_id, given_up):
            metrics.WAIT_SECONDS.observe(time.perf_counter() - start, exemplar())
            async with self._placing:
                live = self._live
                if live is None or live is not session:
                    self._live = None
                    if live is not None:
                        await self.run(live.park)
                    if session is not None:
                        await self.run(session.unpark)
                    self._live = session
            yield

    def made(self, session: Session) -> None:
        """It was made under the lock, and is live."""
        self._live = session

    async def copy(self, session: Session, work: Callable[[], T]) -> T:
        """Does `work`, which reads a session of which nothing else runs, without the lock."""
        async with self._placing:
            # Nothing computes while the live one does not.
            return await _in(self._executor if self._live is session else self._copier, work)

    async def free(self, session: Session, work: Callable[[], None]) -> None:
        """The session is no more; does `work` first if it was live."""
        async with self._placing:
            if self._live is session:
                await self.run(work)
                self._live = None

    def stop(self) -> None:
        """Ends the threads. Blocking."""
        self._executor.shutdown()
        self._copier.shutdown()


async def _in(executor: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(
        executor, context.run, _with_reasons, work
    )


def _with_reasons(work: Callable[[], T]) -> T:
    with gpu.with_reasons():
        return work()


def _use(threads: int) -> None:
    if threads:
        torch.set_num_threads(threads)
