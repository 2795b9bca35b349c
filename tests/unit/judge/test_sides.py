"""Sides of an episode are scored apart: each has its reward, whatever became of the other."""

from __future__ import annotations

import pytest
from podium.core import skip_reasons
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_judge.domain.ruler import RulerScorer
from podium_judge.domain.scores import Usage
from podium_judge.domain.scoring import score_group


def _no_ruler(spec: spec_pb2.RulerSpec, field: str) -> RulerScorer:
    raise AssertionError("the environment's rewards need no judge")


@pytest.mark.parametrize("scored", [{"", "opponent"}, {""}, {"opponent"}, set()])
async def test_a_group_is_skipped_when_no_side_of_it_could_be_scored(scored: set[str]) -> None:
    """Whichever side it is: the first one too."""
    group = trajectory_pb2.Group(id="job/s1/g0", job_id="job", step=1)
    for attempt in range(2):
        for side in ("", "opponent"):
            group.trajectories.add(
                id=f"job/s1/g0/t{attempt}/{side}",
                attempt=attempt,
                side=side,
                stop_reason=trajectory_pb2.STOP_REASON_TERMINATED,
                environment_reward=0.5 * attempt if side in scored else None,
            )
    found = await score_group(group, spec_pb2.RewardSpec(), _no_ruler, Usage())
    assert found.skip_reason == ("" if scored else skip_reasons.NO_REWARD)
    rewards = [each.reward if each.HasField("reward") else None for each in found.trajectories]
    assert rewards == [
        0.5 * each.attempt if each.side in scored else None for each in group.trajectories
    ]
