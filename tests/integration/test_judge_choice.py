"""Who judges, and how its answers are read: the judge as a real process over real gRPC."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from podium.core.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from podium.judge.v1 import judge_service_pb2, judge_service_pb2_grpc
from podium.kit.rpc import rpc_errors
from podium.types.v1 import spec_pb2
from support.fake_judge import Answer, Behaviour, FakeJudge, completion, fails, scores, shown
from support.judge_process import RULER, Process, ask, group, process, stub

__all__ = ["process", "stub"]


def listing(*names: str, **parents: str) -> list[dict[str, Any]]:
    return [{"id": name, "object": "model", "parent": parents.get(name)} for name in names]


@pytest.fixture
def listed(process: Process) -> Iterator[FakeJudge]:
    """The process's judge API, whose list of models the test sets."""
    before = process.model.models
    yield process.model
    process.model.models, process.model.headers = before, {}


MERGED = {"x-podium-weight-mode": "merged"}
UNNAMED = spec_pb2.Scorer(
    kind=spec_pb2.SCORER_KIND_RULER,
    # Of its own, so that nothing that another test looked up is known.
    ruler=spec_pb2.RulerSpec(judges=[spec_pb2.JudgeModel(max_completion_tokens=777)]),
)


def served(*names: str) -> Behaviour:
    """Answers under these names, 404 under all others, as vLLM does."""

    def behave(request: dict[str, Any]) -> Answer:
        if request["model"] not in names:
            return fails(404, '{"error": "no such model"}')(request)
        return scores(lambda text: len(text) / 1000)(request)

    return behave


async def test_no_policy_ever_judges_itself(
    stub: judge_service_pb2_grpc.JudgeServiceAsyncStub, listed: FakeJudge
) -> None:
    """What a merged pool lists over a job's life: its base first, then policies alone."""
    listed.then(served("base", "job", "job@1", "job@2"))
    for names in (["base"], ["job@1", "job"], ["job@2", "job"]):
        listed.models, listed.headers = listing(*names), MERGED
        with pytest.raises(FailedPreconditionError, match="merges what it trains") as caught:
            await ask(stub, group("a", "b"), UNNAMED)
        assert caught.value.reason == "JUDGE_MISCONFIGURED"
    # Of one that does not say how it holds policies, as of another version.
    listed.headers = {}
    with pytest.raises(FailedPreconditionError, match="none but policies that Podium trains"):
        await ask(stub, group("a", "b"), UNNAMED)
    assert listed.requests == []


async def test_beside_adapters_the_frozen_base_judges_and_is_looked_up_again_when_it_is_gone(
    stub: judge_service_pb2_grpc.JudgeServiceAsyncStub, listed: FakeJudge
) -> None:
    listed.then(served("base", "job", "job@1"))
    listed.models = listing("job@1", "job", "base", **{"job@1": "base", "job": "base"})
    answer = await ask(stub, group("a", "bb"), UNNAMED)
    assert answer.group.judgements[0].opinions[0].model == "base"
    listed.then(served("next", "job@1"))
    listed.models = listing("job@1", "job", "next", **{"job@1": "next"})
    answer = await ask(stub, group("a", "ccc"), UNNAMED)
    assert answer.group.judgements[0].opinions[0].model == "next"
    assert [each["model"] for each in listed.requests] == ["base", "next"]
    # A name of one's own is not looked up.
    named = spec_pb2.RulerSpec(model="gone")
    with pytest.raises(UnavailableError, match="HTTP 404: check its address and the model's name"):
        await ask(stub, group("a", "b"), spec_pb2.Scorer(kind=RULER.kind, ruler=named))


@pytest.mark.parametrize("status", [402, 403, 404])
async def test_a_judge_without_credit_leave_or_model_is_away(
    stub: judge_service_pb2_grpc.JudgeServiceAsyncStub, process: Process, status: int
) -> None:
    process.model.then(fails(status, '{"error": "a-key is over its quota"}'))
    with pytest.raises(UnavailableError, match=f"refused with HTTP {status}") as caught:
        await ask(stub, group("a", "b"), RULER)
    assert caught.value.reason == "JUDGE_UNAVAILABLE"
    assert "a-key" not in caught.value.message


async def check(
    stub: judge_service_pb2_grpc.JudgeServiceAsyncStub,
    *scorers: spec_pb2.Scorer,
    base_model: str = "base",
) -> None:
    request = judge_service_pb2.CheckRewardRequest(
        reward=spec_pb2.RewardSpec(scorers=scorers), base_model=base_model
    )
    with rpc_errors("judge"):
        await stub.CheckReward(request, timeout=60.0)


@pytest.mark.parametrize("status", [401, 403, 405])
async def test_a_judge_that_refuses_key_or_address_is_told_before_a_job_is_made(
    stub: judge_service_pb2_grpc.JudgeServiceAsyncStub, listed: FakeJudge, status: int
) -> None:
    listed.refuses, listed.tried = status, []
    named = spec_pb2.RulerSpec(judges=[{}, {"model": "other"}], fallbacks=[{"model": "third"}])
    with pytest.raises(InvalidArgumentError, match=f"refused with HTTP {status}") as caught:
        await check(stub, spec_pb2.Scorer(kind=RULER.kind, ruler=named))
    assert caught.value.reason == "JUDGE_MISCONFIGURED"
    path = "reward.scorers[0].ruler"
    fields = [each.field for each in caught.value.violations]
    assert fields == [f"{path}.judges[1]", f"{path}.fallbacks[0]"]
    assert listed.tried == ["Bearer a-key"] * 2
    # What may come until the first step, and what a server makes of such a question.
    for passing in (200, 400, 402, 404, 429, 500):
        listed.refuses = passing
        await check(stub, spec_pb2.Scorer(kind=RULER.kind, ruler=named))


async def test_a_reward_is_checked_before_a_job_is_made_with_it(
    stub: judge_service_pb2_grpc.JudgeServiceAsyncStub, listed: FakeJudge
) -> None:
    listed.models, listed.headers = listing("base"), MERGED
    mine = spec_pb2.JudgeModel(model="base")
    other = spec_pb2.JudgeModel(model="other")
    ruler = spec_pb2.RulerSpec(judges=[spec_pb2.JudgeModel(), mine, other], fallbacks=[{}])
    environment = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_ENVIRONMENT)
    with pytest.raises(InvalidArgumentError) as caught:
        await check(stub, environment, spec_pb2.Scorer(kind=RULER.kind, ruler=ruler))
    path = "reward.scorers[1].ruler"
    assert [each.field for each in caught.value.violations] == [
        f"{path}.judges[0].model",
        f"{path}.judges[1].model",
        f"{path}.fallbacks[0].model",
    ]
    first, second, _ = (each.description for each in caught.value.violations)
    assert first.startswith("got none, at a pool that merges what it trains into its weights")
    assert second.startswith("got 'base', the job's base model, at a pool")
    assert "Set base_url and model of another judge" in first
    listed.headers = {"x-podium-weight-mode": "adapter"}
    await check(stub, spec_pb2.Scorer(kind=RULER.kind, ruler=ruler))
    listed.headers = {}
    await check(stub, RULER)
    # What ScoreGroup refuses is refused now.
    wrong = spec_pb2.RulerSpec(api_key_env="PODIUM_JUDGE_KEY_OF_NOBODY")
    with pytest.raises(InvalidArgumentError, match="has no such environment variable"):
        await check(stub, spec_pb2.Scorer(kind=RULER.kind, ruler=wrong))
    # A judge that is away now may be there when the job runs.
    away = spec_pb2.RulerSpec(base_url="http://127.0.0.1:9/v1")
    await check(stub, spec_pb2.Scorer(kind=RULER.kind, ruler=away))


async def test_a_judge_that_reasons_is_read_with_one_call(
    stub: judge_service_pb2_grpc.JudgeServiceAsyncStub, process: Process
) -> None:
    def thinking(request: dict[str, Any]) -> Answer:
        entries = [
            {"attempt_id": label, "explanation": "\ud800\x00", "score": f"0.{label}"}
            for label in shown(request)
        ]
        text = json.dumps({"scores": entries})
        return completion(f'<think>{{"scores": []}}?</think>Here:\n```json\n{text}\n```\nDone.')

    process.model.then(thinking)
    answer = await ask(stub, group("reasoned", "about"), RULER)
    assert {t.reward for t in answer.group.trajectories} == {0.1, 0.2}
    assert {t.explanation for t in answer.group.trajectories} == {"\ufffd\ufffd"}
    assert answer.usage.calls == 1


async def test_a_little_too_much_costs_the_judge_a_little(
    stub: judge_service_pb2_grpc.JudgeServiceAsyncStub, process: Process
) -> None:
    process.model.then(scores(lambda text: 0.5))
    answer = await ask(stub, group(*(f"{n}" + "y" * 60_000 for n in range(4))), RULER)
    (request,) = process.model.requests
    assert 180_000 < len(request["messages"][1]["content"]) <= 3 * 65_536
    assert answer.group.judgements[0].opinions[0].bytes_left_out < 60_000
