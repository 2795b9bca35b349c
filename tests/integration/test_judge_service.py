"""The judge as a real process over real gRPC, its model a scripted server over real HTTP."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from podium.core.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from podium.judge.v1 import judge_service_pb2, judge_service_pb2_grpc
from podium.kit.rpc import rpc_errors
from podium.types.v1 import spec_pb2
from support.fake_judge import Answer, completion, fails, says, scores
from support.judge_process import RULER, Process, ask, group, process, stub

__all__ = ["process", "stub"]

PROMPT_TOKENS = 'podium_judge_tokens_total{kind="prompt",model="default"}'


async def test_the_environments_reward_passes_through(
    stub: judge_service_pb2_grpc.JudgeServiceAsyncStub,
) -> None:
    answer = await ask(stub, group("a", "b"))
    assert [trajectory.reward for trajectory in answer.group.trajectories] == [0.0, 1.0]
    assert answer.usage.calls == 0


async def test_ruler_scores_and_counts(
    stub: judge_service_pb2_grpc.JudgeServiceAsyncStub, process: Process
) -> None:
    process.model.then(says("hm"), scores(lambda text: len(text) / 1000))
    scored = process.metric('podium_judge_groups_total{outcome="scored"}')
    failures = process.metric("podium_judge_parse_failures_total")
    tokens = process.metric(PROMPT_TOKENS)
    answer = await ask(stub, group("short", "a little longer"), RULER)
    short, longer = answer.group.trajectories
    assert 0 < short.reward < longer.reward < 1
    assert longer.explanation.startswith("saw ")
    assert (answer.usage.calls, answer.usage.prompt_tokens) == (2, 200)
    assert answer.usage.completion_tokens == 20
    assert process.model.requests[0]["model"] == "fake-judge"
    assert set(process.model.authorizations) == {"Bearer a-key"}
    assert process.metric('podium_judge_groups_total{outcome="scored"}') == scored + 1
    assert process.metric("podium_judge_parse_failures_total") == failures + 1
    assert process.metric(PROMPT_TOKENS) == tokens + 200
    assert process.metric("podium_judge_score_seconds_count") > 0
    handled = 'podium_grpc_server_handled_total{code="OK",method="ScoreGroup"'
    assert handled in process.exposition()


async def test_defaults_of_the_contract_are_filled_in(
    stub: judge_service_pb2_grpc.JudgeServiceAsyncStub,
) -> None:
    scorer = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_WEIGHTED)
    answer = await ask(stub, group("a"), scorer)
    expected = 0.4 * 0.7 + 0.3 * 1 + 0.2 * 1 + 0.1 * 1
    assert answer.group.trajectories[0].reward == pytest.approx(expected)


async def test_a_useless_judge_is_a_skipped_group(
    stub: judge_service_pb2_grpc.JudgeServiceAsyncStub, process: Process
) -> None:
    process.model.then(says("I cannot decide."))
    answer = await ask(stub, group("a", "b"), RULER)
    assert answer.group.skip_reason == "judge_failed"
    assert not any(trajectory.HasField("reward") for trajectory in answer.group.trajectories)
    assert answer.usage.calls == 2


async def test_bad_requests_name_every_fault(
    stub: judge_service_pb2_grpc.JudgeServiceAsyncStub,
) -> None:
    wrong_sum = spec_pb2.Scorer(
        kind=spec_pb2.SCORER_KIND_WEIGHTED, weighted=spec_pb2.WeightedCriteria(accuracy=0.9)
    )
    wrong_key = spec_pb2.Scorer(
        kind=spec_pb2.SCORER_KIND_RULER, ruler=spec_pb2.RulerSpec(api_key_env="PODIUM_JUDGE_KEY_X")
    )
    with pytest.raises(InvalidArgumentError) as caught:
        await ask(stub, group("a", "b"), wrong_sum, wrong_key)
    assert [violation.field for violation in caught.value.violations] == [
        "reward.scorers[0].weighted",
        "reward.scorers[1].ruler.api_key_env",
    ]
    with pytest.raises(InvalidArgumentError) as caught:
        await ask(stub, group(), RULER)
    assert caught.value.violations[0].field == "group.trajectories"
    with pytest.raises(InvalidArgumentError) as caught:
        await ask(stub, group("a"), spec_pb2.Scorer(weight=-1))
    assert {violation.field for violation in caught.value.violations} == {
        "reward.scorers[0].kind",
        "reward.scorers[0].weight",
    }


async def test_an_unreachable_model_is_unavailable(
    stub: judge_service_pb2_grpc.JudgeServiceAsyncStub, process: Process
) -> None:
    process.model.then(fails(503))
    with pytest.raises(UnavailableError, match="HTTP 503"):
        await ask(stub, group("a", "b"), RULER)


async def test_a_wrong_key_says_so_and_leaks_nothing(
    stub: judge_service_pb2_grpc.JudgeServiceAsyncStub, process: Process
) -> None:
    process.model.then(fails(401, '{"error": "a-key is wrong"}'))
    with pytest.raises(FailedPreconditionError) as caught:
        await ask(stub, group("a", "b"), RULER)
    assert caught.value.reason == "JUDGE_MISCONFIGURED"
    assert "a-key" not in caught.value.message
    assert "a-key" not in process.log.read_text()


async def test_a_slow_model_ends_with_the_callers_deadline(
    stub: judge_service_pb2_grpc.JudgeServiceAsyncStub, process: Process
) -> None:
    process.model.then(lambda request: Answer(body=completion("{}").body, delay=3.0))
    request = judge_service_pb2.ScoreGroupRequest(
        group=group("slow", "slower"), reward=spec_pb2.RewardSpec(scorers=[RULER])
    )
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ScoreGroup(request, timeout=0.5)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    process.model.then(scores(lambda text: 0.5))
    assert (await ask(stub, group("slow", "slower"), RULER)).group.trajectories[0].reward == 0.5


async def test_many_groups_at_once(
    stub: judge_service_pb2_grpc.JudgeServiceAsyncStub, process: Process
) -> None:
    process.model.then(scores(lambda text: len(text) / 1000))
    answers = await asyncio.gather(
        *(ask(stub, group("x" * index, "y" * 100), RULER) for index in range(1, 65))
    )
    rewards = [answer.group.trajectories[0].reward for answer in answers]
    assert rewards == sorted(rewards)
    assert len(set(rewards)) == 64


async def test_a_panel_a_budget_and_known_answers_over_the_wire(
    stub: judge_service_pb2_grpc.JudgeServiceAsyncStub, process: Process
) -> None:
    process.model.then(scores(lambda text: len(text) / 1000))
    judge = spec_pb2.JudgeModel(model="priced")
    ruler = spec_pb2.RulerSpec(judges=[judge, spec_pb2.JudgeModel()], max_job_tokens=20_000)
    scorer = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER, ruler=ruler)
    first = await ask(stub, group("of a panel", "of a panel, too"), scorer)
    assert (first.usage.calls, first.usage.cached) == (2, 0)
    assert first.usage.cost == pytest.approx(0.13)
    (judgement,) = first.group.judgements
    assert (judgement.part, judgement.agreement) == ("ruler", 1.0)
    assert [opinion.HasField("cost") for opinion in judgement.opinions] == [True, False]
    again = await ask(stub, group("of a panel", "of a panel, too"), scorer)
    assert (again.usage.calls, again.usage.cached, again.usage.cost) == (0, 2, 0.0)
    assert [t.reward for t in again.group.trajectories] == [
        t.reward for t in first.group.trajectories
    ]
    spent = judge_service_pb2.JudgeUsage(prompt_tokens=20_000)
    request = judge_service_pb2.ScoreGroupRequest(
        group=group("a", "b"), reward=spec_pb2.RewardSpec(scorers=[scorer]), job_usage=spent
    )
    with rpc_errors("judge"):
        refused = await stub.ScoreGroup(request, timeout=60)
    assert refused.group.skip_reason == "judge_budget"
    assert process.metric('podium_judge_groups_total{outcome="judge_budget"}') == 1
    assert process.metric('podium_judge_questions_total{source="cached"}') >= 2
    assert process.metric('podium_judge_cost_total{model="priced"}') == pytest.approx(0.13)
    assert process.metric("podium_judge_agreement_ratio_count") >= 1
    for statistic in ("slope", "z"):
        assert f'podium_judge_position_{statistic}{{model="default"}}' in process.exposition()
