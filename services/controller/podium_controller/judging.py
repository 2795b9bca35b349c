"""Scores groups, and says why one is of no use."""

from __future__ import annotations

from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_controller.ports import Judge
from podium_controller.recovery import Recovery
from podium_controller.statistics import is_failed

ALL_FAILED = "all_failed"
JUDGE_FAILED = "judge_failed"
JUDGE_BUDGET = "judge_budget"


class Judging:
    """Scores one job's groups."""

    def __init__(self, judge: Judge, reward: spec_pb2.RewardSpec, recovery: Recovery) -> None:
        self._judge = judge
        self._reward = reward
        self._recovery = recovery
        self._usage = judge_pb.JudgeUsage()

    async def score(self, group: trajectory_pb2.Group) -> trajectory_pb2.Group:
        """The scored group; the judge's skip_reason stays on it."""
        response = await self._recovery.run("judge", lambda: self._judge.score(self._ask(group)))
        self._count(response.usage)
        return response.group

    def _ask(self, group: trajectory_pb2.Group) -> judge_pb.ScoreGroupRequest:
        return judge_pb.ScoreGroupRequest(group=group, reward=self._reward, job_usage=self._usage)

    def _count(self, usage: judge_pb.JudgeUsage) -> None:
        """Replicas of the judge do not know what the others have spent on the job."""
        self._usage.calls += usage.calls
        self._usage.prompt_tokens += usage.prompt_tokens
        self._usage.completion_tokens += usage.completion_tokens
        self._usage.cost += usage.cost
        self._usage.cached += usage.cached


def unusable(group: trajectory_pb2.Group) -> str:
    """Why nothing can be learned from a scored group, and never could; empty otherwise.

    A group without variance is not unusable: it says something about the
    policy. One whose attempts all broke says something about the environment.
    """
    if group.trajectories and all(map(is_failed, group.trajectories)):
        return ALL_FAILED
    return group.skip_reason if group.skip_reason in (JUDGE_FAILED, JUDGE_BUDGET) else ""


def failure_text(group: trajectory_pb2.Group) -> str:
    """What the group's attempts, or its judge, died of, in their own words."""
    for trajectory in group.trajectories:
        if is_failed(trajectory):
            failure = trajectory.failure
            return f"{failure.type}: {failure.message}" if failure.type else failure.message
    words = (trajectory.explanation for trajectory in group.trajectories)
    return next(filter(None, words), group.skip_reason)
