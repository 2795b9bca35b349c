"""Holds a job's `budget.max_judge_cost` against calls whose price is known beforehand.

Judges are told the bound and keep it themselves; a scorer over HTTP knows none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_controller.domain.budget import judges_spent


class CostBound:
    """Of one job: what its judges have cost, and what the groups in flight may add to it."""

    def __init__(self, budget: spec_pb2.BudgetSpec) -> None:
        self._budget = budget
        self._most = budget.max_judge_cost
        self._in_flight = 0.0
        self._asking = 0
        self._cost = 0.0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def group(
        self, wanted: float, stored: Callable[[], Awaitable[judge_pb.JudgeUsage]]
    ) -> AsyncIterator[str]:
        """A group is scored inside the block, unless what it gives says why not.

        Where what is in flight may use up the budget, it waits until that is known; whoever is
        alone goes on, so that a group that was begun is finished.

        Args:
            wanted: what its priced calls may cost.
            stored: what is stored of what the job's judges have used.
        """
        if not self._budget.HasField("max_judge_cost"):
            yield ""
            return
        async with self._changed:
            await self._look(stored)
            while self._asking and wanted and self._cost + self._in_flight + wanted > self._most:
                if judges_spent(self._budget, self._cost):
                    break
                await self._changed.wait()
                await self._look(stored)
            spent = judges_spent(self._budget, self._cost)
            if not spent:
                self._asking += 1
                self._in_flight += wanted
        if spent:
            yield spent
            return
        try:
            yield ""
        finally:
            async with self._changed:
                self._asking -= 1
                # What rounding leaves is nothing.
                self._in_flight = self._in_flight - wanted if self._asking else 0.0
                self._changed.notify_all()

    def count(self, cost: float) -> None:
        """Adds what an answer cost, which is stored a moment later."""
        self._cost += cost

    async def _look(self, stored: Callable[[], Awaitable[judge_pb.JudgeUsage]]) -> None:
        self._cost = max(self._cost, (await stored()).cost)


def price_of_calls(reward: spec_pb2.RewardSpec, group: trajectory_pb2.Group) -> float:
    """At most what the calls of scorers over HTTP cost for a group, by their `call_price`."""
    total = 0.0
    for scorer in reward.scorers:
        if scorer.kind != spec_pb2.SCORER_KIND_HTTP or not scorer.http.call_price:
            continue
        if scorer.http.protocol in (
            spec_pb2.HTTP_SCORER_PROTOCOL_CLASSIFY,
            spec_pb2.HTTP_SCORER_PROTOCOL_POOLING,
        ):
            calls = sum(len(each.histories) for each in group.trajectories)
        else:
            calls = len({each.side for each in group.trajectories})
        total += calls * scorer.http.call_price
    return total
