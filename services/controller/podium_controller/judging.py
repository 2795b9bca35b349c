"""Scores groups, and says why one is of no use."""

from __future__ import annotations

from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_controller.ports import Judge
from podium_controller.recovery import Recovery
from podium_controller.statistics import is_failed

ALL_FAILED = "all_failed"
JUDGE_FAILED = "judge_failed"


class Judging:
    """Scores one job's groups."""

    def __init__(self, judge: Judge, reward: spec_pb2.RewardSpec, recovery: Recovery) -> None:
        self._judge = judge
        self._reward = reward
        self._recovery = recovery

    async def score(self, group: trajectory_pb2.Group) -> trajectory_pb2.Group:
        """The scored group; the judge's skip_reason stays on it."""
        return await self._recovery.run("judge", lambda: self._judge.score(group, self._reward))


def unusable(group: trajectory_pb2.Group) -> str:
    """Why nothing can be learned from a scored group, and never could; empty otherwise.

    A group without variance is not unusable: it says something about the
    policy. One whose attempts all broke says something about the environment.
    """
    if group.trajectories and all(map(is_failed, group.trajectories)):
        return ALL_FAILED
    return JUDGE_FAILED if group.skip_reason == JUDGE_FAILED else ""


def failure_text(group: trajectory_pb2.Group) -> str:
    """What the group's attempts, or its judge, died of, in their own words."""
    for trajectory in group.trajectories:
        if is_failed(trajectory):
            failure = trajectory.failure
            return f"{failure.type}: {failure.message}" if failure.type else failure.message
    return group.skip_reason
