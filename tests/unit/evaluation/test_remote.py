"""Episodes through a rollout service: what an environment tells does not end an evaluation."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import pytest
from podium.rollout.v1 import rollout_service_pb2 as pb
from podium.sdk.evaluation.remote import run_policy
from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2


class Telling:
    """A rollout service whose environment has a metric `turns` of its own."""

    def __init__(self, turns: float) -> None:
        self._turns = turns

    async def CollectGroup(
        self, request: pb.CollectGroupRequest, **options: Any
    ) -> AsyncIterator[pb.CollectGroupResponse]:
        told = trajectory_pb2.Trajectory(
            scenario_id=request.scenario.id, metrics={"turns": self._turns}
        )
        yield pb.CollectGroupResponse(trajectory=told)


@pytest.mark.parametrize(("turns", "told"), [(2.0, 2), (math.nan, 0), (math.inf, 10**12)])
async def test_turns_that_are_no_count_end_no_evaluation(turns: float, told: int) -> None:
    found = await run_policy(
        Telling(turns),  # type: ignore[arg-type]
        spec_pb2.EnvironmentSpec(name="double"),
        [trajectory_pb2.Scenario(id="one")],
        policy_pb2.PolicyRef(job="j"),
        policy_pb2.SamplingParams(),
        spec_pb2.EpisodeSpec(),
    )
    assert [attempt.turns for attempt in found] == [told]
