"""Scores of groups: JudgeService."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from podium.core.specs.generated import RewardSpec
from podium.core.specs.sources import message_of
from podium.judge.v1 import judge_service_pb2 as pb
from podium.judge.v1 import judge_service_pb2_grpc as pb_grpc
from podium.sdk.connection.failures import failures
from podium.types.v1 import spec_pb2, trajectory_pb2

if TYPE_CHECKING:
    import grpc

_SECONDS = 900.0
_CHECK_SECONDS = 60.0


class Judge:
    """JudgeService.

    Every method raises `UnavailableError` while the judge service cannot be reached,
    `DeadlineExceededError` when it does not answer in time, and `UnauthenticatedError` or
    `PermissionDeniedError` where a token is asked for. What else one raises stands there; all are
    of `podium.core.errors`.
    """

    def __init__(self, channel: Callable[[], grpc.aio.Channel], place: str = "") -> None:
        self._channel = channel
        self._failures = failures("judge", place)

    async def score(
        self,
        group: trajectory_pb2.Group,
        reward: spec_pb2.RewardSpec | RewardSpec | Mapping[str, Any],
    ) -> pb.ScoreGroupResponse:
        """The group with its rewards, or with a skip_reason and none, and what it cost.

        Args:
            group: the attempts of one scenario.
            reward: the scorers, as a job has them.

        Raises:
            InvalidArgumentError: what is wrong with the scorers, by field.
            FailedPreconditionError: JUDGE_MISCONFIGURED, a judge refuses its key, address or
                model.
            ResourceExhaustedError: it has no room for another group.
            UnavailableError: the judge service, or what it asks, does not answer. It is given 900
                seconds.
        """
        stub: pb_grpc.JudgeServiceAsyncStub = pb_grpc.JudgeServiceStub(self._channel())
        known = message_of(reward, spec_pb2.RewardSpec)
        request = pb.ScoreGroupRequest(group=group, reward=known)
        with self._failures():
            return await stub.ScoreGroup(request, timeout=_SECONDS)

    async def check(
        self, reward: spec_pb2.RewardSpec | RewardSpec | Mapping[str, Any], base_model: str = ""
    ) -> None:
        """Whether groups can be scored so; no judge is asked for an answer.

        Args:
            reward: the scorers, as a job has them.
            base_model: which model trains with it, and so is not to judge itself; empty for none.

        Raises:
            InvalidArgumentError: with every field that is wrong.
        """
        stub: pb_grpc.JudgeServiceAsyncStub = pb_grpc.JudgeServiceStub(self._channel())
        known = message_of(reward, spec_pb2.RewardSpec)
        request = pb.CheckRewardRequest(reward=known, base_model=base_model)
        with self._failures():
            await stub.CheckReward(request, timeout=_CHECK_SECONDS)
