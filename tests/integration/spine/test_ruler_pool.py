"""RULER with a model of Podium's own pool, real vLLM, real schema; no policy judges itself."""

from __future__ import annotations

import grpc
import pytest
from podium.core.errors import FailedPreconditionError, InvalidArgumentError
from podium.judge.v1 import judge_service_pb2, judge_service_pb2_grpc
from podium.local.launcher import Launcher
from podium.types.v1 import spec_pb2
from support.jobs import at_the_base_model, client_of
from support.judging import group_of

BASE_MODEL = "smollm2-135m-instruct"

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.long,
    pytest.mark.timeout(600),
]


async def test_a_merged_pool_judges_nothing_unless_it_is_named(real_stack: Launcher) -> None:
    scorer = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER)
    reward = spec_pb2.RewardSpec(scorers=[scorer])
    spec = spec_pb2.JobSpec(
        base_model=BASE_MODEL,
        environment=spec_pb2.EnvironmentSpec(name="tic_tac_toe"),
        training=spec_pb2.TrainingSpec(steps=1),
        reward=reward,
    )
    async with client_of(real_stack) as client:
        with pytest.raises(InvalidArgumentError) as caught:
            await client.jobs.create(spec, validate_only=True)
        assert [each.field for each in caught.value.violations] == [
            "job.spec.reward.scorers[0].ruler.model"
        ]
        with pytest.raises(FailedPreconditionError, match="merges what it trains"):
            await client.judge.score(group_of("four", "I do not know."), reward)


async def test_our_own_pool_judges_a_group(real_stack: Launcher) -> None:
    await at_the_base_model(real_stack)
    judge = spec_pb2.JudgeModel(model=BASE_MODEL, max_completion_tokens=512)
    scorer = spec_pb2.Scorer(
        kind=spec_pb2.SCORER_KIND_RULER, ruler=spec_pb2.RulerSpec(judges=[judge])
    )
    request = judge_service_pb2.ScoreGroupRequest(
        group=group_of("There are four apples.", "I do not know."),
        reward=spec_pb2.RewardSpec(scorers=[scorer]),
    )
    async with grpc.aio.insecure_channel(real_stack.address("judge")) as channel:
        stub = judge_service_pb2_grpc.JudgeServiceStub(channel)
        answer = await stub.ScoreGroup(request, timeout=300)
    (opinion,) = answer.group.judgements[0].opinions
    assert opinion.failure == ""
    assert opinion.prompt_tokens > 100
    for trajectory in answer.group.trajectories:
        assert 0 <= trajectory.reward <= 1
        assert trajectory.metrics["ruler_score"] == trajectory.reward
