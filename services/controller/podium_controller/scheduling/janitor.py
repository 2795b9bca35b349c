"""Makes room where trajectories are stored: the oldest go that nobody needs but to read them."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable

from podium_controller.domain import metrics
from podium_controller.domain.accounts import StepTrajectories, TrajectoryKeeper
from podium_controller.domain.errors import DatabaseUnavailableError

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 60.0
# Of the limit, where making room ends: not every minute, for a few groups each time.
_ENOUGH = 0.9
# Of one transaction: a step's may be tens of megabytes, and others write too.
_GROUPS_AT_ONCE = 16
_STEPS_AT_ONCE = 100
_DAY_NS = 86400 * 10**9
_FOREVER = 2**63 - 1

AGE, SIZE = "age", "size"


class Janitor:
    """Of the controller that has the lease. What it has begun, its successor ends."""

    def __init__(
        self,
        trajectories: TrajectoryKeeper,
        max_bytes: int,
        days: float,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`max_bytes` and `days` are 0 for no limit."""
        self._trajectories = trajectories
        self._max_bytes = max_bytes
        self._days = days
        self._now_ns = now_ns

    async def run(self) -> None:
        """Looks every minute, until it is cancelled."""
        metrics.TRAJECTORY_LIMIT.set(self._max_bytes or math.inf)
        try:
            while True:
                try:
                    await self.look()
                except DatabaseUnavailableError:
                    logger.warning("the database cannot be reached; making room later")
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            metrics.TRAJECTORY_BYTES.set(0)

    async def look(self) -> None:
        """Deletes what is too old, and the oldest of what is too much."""
        stored = await self._trajectories.stored_bytes()
        metrics.TRAJECTORY_BYTES.set(stored)
        if self._days:
            before = self._now_ns() - int(self._days * _DAY_NS)
            stored -= await self._make_room(before, stored, AGE)
        if self._max_bytes and stored > self._max_bytes:
            too_much = stored - int(self._max_bytes * _ENOUGH)
            stored -= await self._make_room(_FOREVER, too_much, SIZE)
            if stored > self._max_bytes:
                logger.warning(
                    "trajectories take more than they may, and none can go: the jobs in progress"
                    " need them",
                    extra={"bytes": stored, "limit": self._max_bytes},
                )
        metrics.TRAJECTORY_BYTES.set(stored)

    async def _make_room(self, before: int, wanted: int, reason: str) -> int:
        """Deletes until so many bytes are free, or nothing is left to delete; bytes freed."""
        freed = 0
        while freed < wanted:
            spare = await self._trajectories.spare(before, _STEPS_AT_ONCE)
            for each in spare:
                freed += await self._delete(each, reason)
                if freed >= wanted:
                    break
            if len(spare) < _STEPS_AT_ONCE:
                break
        if freed:
            logger.info("deleted trajectories", extra={"bytes": freed, "reason": reason})
        return freed

    async def _delete(self, what: StepTrajectories, reason: str) -> int:
        freed, groups = 0, _GROUPS_AT_ONCE
        while groups == _GROUPS_AT_ONCE:
            groups, size = await self._trajectories.delete(what, _GROUPS_AT_ONCE)
            freed += size
            metrics.TRAJECTORY_GROUPS_DELETED.labels(reason).inc(groups)
            metrics.TRAJECTORY_BYTES_DELETED.labels(reason).inc(size)
        return freed
