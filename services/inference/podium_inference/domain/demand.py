"""Versions that requests ask for and that are not served: fetched once, however many ask."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from podium.core.errors import NotFoundError, UnavailableError
from podium.core.tasks import cancel_and_wait

Load = Callable[[str, int | None], Awaitable[None]]
"""Serves a version of a job, None for its newest; NotFoundError where there is none."""

_MOST_REMEMBERED = 10_000


def not_loaded(job: str, version: int | None, why: str) -> NotFoundError:
    """POLICY_NOT_LOADED, and why it is not fetched."""
    wanted = "the base model" if job in ("", "base") else job
    if version is not None:
        wanted = f"{job}@{version}"
    return NotFoundError(
        f"{wanted} is not loaded in this pool: {why}",
        reason="POLICY_NOT_LOADED",
        metadata={"policy": wanted},
    )


class Demand:
    """One load a version, which every request for it waits for."""

    def __init__(self, load: Load, timeout_s: float) -> None:
        self._load = load
        self._timeout = timeout_s
        self._running: dict[tuple[str, int | None], asyncio.Task[None]] = {}
        # Ordered, for the oldest to go first. None stands for all of a job's versions.
        self._forbidden: dict[tuple[str, int | None], None] = {}

    def forbid(self, job: str, version: int | None) -> None:
        """It was unloaded, None for the whole job: requests do not bring it back."""
        self._forbidden[job, version] = None
        while len(self._forbidden) > _MOST_REMEMBERED:
            del self._forbidden[next(iter(self._forbidden))]

    def allow(self, job: str, version: int) -> None:
        """It was loaded by whoever decides about that."""
        self._forbidden.pop((job, None), None)
        self._forbidden.pop((job, version), None)

    def check(self, job: str, version: int | None) -> None:
        """Raises NotFoundError (POLICY_NOT_LOADED) for what was unloaded."""
        if (job, None) in self._forbidden or (job, version) in self._forbidden:
            raise not_loaded(job, version, "it was unloaded")

    async def fetch(self, job: str, version: int | None) -> None:
        """Returns when it was loaded, or at once when that was forbidden.

        Raises:
            NotFoundError: POLICY_NOT_LOADED.
            UnavailableError: POLICY_LOADING, it takes too long; it goes on.
            PodiumError: why it could not be loaded.
        """
        self.check(job, version)
        key = (job, version)
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(
                self._fetch(job, version), name=f"fetch-{job}"
            )
            task.add_done_callback(lambda done: self._ended(key, done))
        try:
            # A request that gives up must not leave weights half exchanged.
            await asyncio.wait_for(asyncio.shield(task), self._timeout)
        except TimeoutError:
            raise UnavailableError(
                f"{job} is not fetched after {self._timeout:g} s", reason="POLICY_LOADING"
            ) from None

    async def close(self) -> None:
        """Ends what still runs."""
        await cancel_and_wait(*self._running.values())

    async def _fetch(self, job: str, version: int | None) -> None:
        try:
            await self._load(job, version)
        except NotFoundError as error:
            if error.reason == "POLICY_NOT_LOADED":
                raise
            raise not_loaded(job, version, error.message) from error

    def _ended(self, key: tuple[str, int | None], task: asyncio.Task[None]) -> None:
        self._running.pop(key, None)
        if not task.cancelled():
            # Those who waited were told; if nobody did, nobody needs to be.
            task.exception()
