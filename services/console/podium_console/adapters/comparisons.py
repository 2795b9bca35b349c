"""Two stored evaluations against each other, scenario by scenario.

A stored evaluation never changes, so what two of them come to is worked out once for all who look;
the controller is asked each time, with the token of whoever looks, whether it shows them both.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from podium.core.errors import FailedPreconditionError
from podium.core.means import mean_of
from podium.jobs.v1 import evaluation_service_pb2 as pb
from podium.jobs.v1 import evaluation_service_pb2_grpc as pb_grpc
from podium.kit.rpc import rpc_errors
from podium.sdk.evaluation import (
    Paired,
    ScenarioMeans,
    differences,
    means_of,
    other_scenarios,
    pair,
)

from podium_console.domain import views
from podium_console.domain.evaluations import stored
from podium_console.domain.series import rounded

_PAGE = 1000
_MOST = 256
"""Comparisons that are kept."""
_AT_ONCE = 2
"""Comparisons that are worked out at a time: one may read two hundred thousand scenarios."""
_SHOWN = 50
"""Scenarios that are told, of those that differ most."""


@dataclass(frozen=True)
class _Known:
    """What a comparison comes to."""

    unlike: str
    """How their scenarios differ; empty where they do not."""
    result: dict[str, Any] | None
    """None where they have no scenario in common."""


class Comparisons:
    """Of an installation."""

    def __init__(self, stub: Callable[[], pb_grpc.EvaluationServiceAsyncStub]) -> None:
        """`stub` calls the controller with the token of whoever asks."""
        self._stub = stub
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def look(self, first_id: str, second_id: str, *, common: bool) -> dict[str, Any]:
        """The second against the first.

        Args:
            common: of the scenarios that both have, where they have not the same.

        Raises:
            FailedPreconditionError: SCENARIOS_DIFFER: not the same, and not `common`, or none is.
            PodiumError: as GetStoredEvaluation.
        """
        first, second = await asyncio.gather(self._get(first_id), self._get(second_id))
        known = self._known.get((first.id, second.id))
        if known is None:
            async with self._slots:
                # Somebody may have asked for the same meanwhile.
                known = self._known.get((first.id, second.id))
                known = known or await self._work_out(first, second)
        self._known[first.id, second.id] = known
        self._known.move_to_end((first.id, second.id))
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        if known.result is None or (known.unlike and not common):
            nothing = f"{first.id} and {second.id} have no scenario in common that was answered"
            reason = "SCENARIOS_DIFFER" if known.result is not None else "NOTHING_IN_COMMON"
            raise FailedPreconditionError(known.unlike or nothing, reason=reason)
        notes = [each for each in (known.unlike, *differences(first, second)) if each]
        return {
            "first": stored(first),
            "second": stored(second),
            "notes": [views.cut(each) for each in notes],
            **known.result,
        }

    async def _get(self, evaluation_id: str) -> pb.StoredEvaluation:
        request = pb.GetStoredEvaluationRequest(evaluation_id=evaluation_id)
        with rpc_errors("controller"):
            return (await self._stub().GetStoredEvaluation(request)).evaluation

    async def _work_out(self, first: pb.StoredEvaluation, second: pb.StoredEvaluation) -> _Known:
        one, two = await self._means(first.id), await self._means(second.id)
        # Intervals of 100,000 scenarios take a while, and the loop is other pages' too.
        return await asyncio.to_thread(_compare, (first, one), (second, two))

    async def _means(self, evaluation_id: str) -> dict[str, ScenarioMeans | None]:
        found: dict[str, ScenarioMeans | None] = {}
        request = pb.ListScenarioResultsRequest(evaluation_id=evaluation_id, page_size=_PAGE)
        while True:
            with rpc_errors("controller"):
                page = await self._stub().ListScenarioResults(request)
            found |= {result.scenario_id: means_of(result) for result in page.results}
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token


_Side = tuple[pb.StoredEvaluation, dict[str, ScenarioMeans | None]]


def _compare(first: _Side, second: _Side) -> _Known:
    unlike = other_scenarios(first, second)
    one, two = (
        {name: means for name, means in side.items() if means is not None}
        for _, side in (first, second)
    )
    try:
        paired = pair(one, two)
    except ValueError:
        return _Known(unlike, None)
    return _Known(
        unlike,
        {
            "scenarios": len(paired.scenarios),
            "success": _difference(paired.success, paired.success_interval()),
            "reward": _difference(paired.reward, paired.reward_interval()),
            "rows": _rows(paired, one, two),
        },
    )


def _difference(values: list[float], interval: tuple[float, float] | None) -> dict[str, Any] | None:
    if not values:
        return None
    low, high = map(rounded, interval) if interval else (None, None)
    return {
        "mean": rounded(mean_of(values)),
        "low": low,
        "high": high,
        "better": sum(value > 0 for value in values),
        "worse": sum(value < 0 for value in values),
    }


def _rows(
    paired: Paired, one: dict[str, ScenarioMeans], two: dict[str, ScenarioMeans]
) -> list[dict[str, Any]]:
    """The scenarios that differ most, worst first among equals."""
    by_size = sorted(
        zip(paired.scenarios, paired.success, strict=True),
        key=lambda each: (-abs(each[1]), each[1]),
    )
    return [
        {"id": name, "first": _side(one[name]), "second": _side(two[name])}
        for name, difference in by_size[:_SHOWN]
        if difference
    ]


def _side(means: ScenarioMeans) -> dict[str, Any]:
    return {
        "succeeded": round(means.success * means.attempts),
        "attempts": means.attempts,
        "reward": None if means.reward is None else rounded(means.reward),
    }
