"""RULER with nothing configured: the judge model is Podium's own pool, real vLLM, real schema."""

from __future__ import annotations

import grpc
import pytest
from podium.judge.v1 import judge_service_pb2, judge_service_pb2_grpc
from podium.launcher import Launcher
from podium.types.v1 import spec_pb2
from support.judging import group_of

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.timeout(600),
]


async def test_our_own_pool_judges_a_group(stack: Launcher) -> None:
    judge = spec_pb2.JudgeModel(max_completion_tokens=512)
    scorer = spec_pb2.Scorer(
        kind=spec_pb2.SCORER_KIND_RULER, ruler=spec_pb2.RulerSpec(judges=[judge])
    )
    request = judge_service_pb2.ScoreGroupRequest(
        group=group_of("There are four apples.", "I do not know."),
        reward=spec_pb2.RewardSpec(scorers=[scorer]),
    )
    async with grpc.aio.insecure_channel(stack.address("judge")) as channel:
        stub = judge_service_pb2_grpc.JudgeServiceStub(channel)
        answer = await stub.ScoreGroup(request, timeout=300)
    (opinion,) = answer.group.judgements[0].opinions
    assert opinion.failure == ""
    assert opinion.prompt_tokens > 100
    for trajectory in answer.group.trajectories:
        assert 0 <= trajectory.reward <= 1
        assert trajectory.metrics["ruler_score"] == trajectory.reward
