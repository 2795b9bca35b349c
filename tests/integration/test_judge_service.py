"""The judge as a real process over real gRPC, its model a scripted server over real HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from podium.core.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from podium.judge.v1 import judge_service_pb2, judge_service_pb2_grpc
from podium.rpc import connect, rpc_errors
from podium.types.v1 import spec_pb2, trajectory_pb2
from support.fake_judge import (
    Answer,
    Behaviour,
    FakeJudge,
    completion,
    fails,
    fake_judge,
    says,
    scores,
    shown,
)
from support.processes import free_port

PROMPT_TOKENS = 'podium_judge_tokens_total{kind="prompt",model="default"}'
RULER = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER)


@dataclass
class Process:
    child: subprocess.Popen[bytes]
    address: str
    metrics: str
    model: FakeJudge
    log: Path

    def exposition(self) -> str:
        with urllib.request.urlopen(self.metrics, timeout=10) as response:
            return str(response.read().decode())

    def metric(self, line: str) -> float:
        rows = self.exposition().splitlines()
        values = [row.rpartition(" ")[2] for row in rows if row.startswith(line + " ")]
        return float(values[0]) if values else 0.0


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    port, health, metrics = (free_port() for _ in range(3))
    log = tmp_path_factory.mktemp("judge") / "judge.log"
    with fake_judge() as model, log.open("wb") as stream:
        environment = {
            "PODIUM_JUDGE_PORT": str(port),
            "PODIUM_JUDGE_HEALTH_PORT": str(health),
            "PODIUM_JUDGE_METRICS_PORT": str(metrics),
            "PODIUM_JUDGE_BASE_URL": model.base_url,
            "PODIUM_JUDGE_KEY": "a-key",
            "PODIUM_JUDGE_REQUEST_ATTEMPTS": "3",
            "PODIUM_JUDGE_REQUEST_TIMEOUT_SECONDS": "5",
            "PODIUM_JUDGE_BACKOFF_SECONDS": "0.01",
            "PODIUM_JUDGE_PRICES": '{"priced": [1000, 3000]}',
        }
        child = subprocess.Popen(
            [sys.executable, "-m", "podium_judge"],
            env={**os.environ, **environment},
            stdout=stream,
            stderr=stream,
        )
        try:
            yield Process(
                child, f"127.0.0.1:{port}", f"http://127.0.0.1:{metrics}/metrics", model, log
            )
        finally:
            child.send_signal(signal.SIGTERM)
            try:
                code = child.wait(30)
            finally:
                child.kill()
        assert code == 0, log.read_text()


@pytest.fixture
async def stub(process: Process) -> AsyncIterator[judge_service_pb2_grpc.JudgeServiceAsyncStub]:
    channel = connect(process.address)
    try:
        await asyncio.wait_for(channel.channel_ready(), 30)
        yield judge_service_pb2_grpc.JudgeServiceStub(channel)
    finally:
        await channel.close()


def group(*texts: str) -> trajectory_pb2.Group:
    made = trajectory_pb2.Group(id="job/s1/g0", job_id="job", step=1)
    for number, text in enumerate(texts):
        trajectory = made.trajectories.add(
            id=f"{made.id}/t{number}",
            group_id=made.id,
            scenario_id="s",
            attempt=number,
            stop_reason=trajectory_pb2.STOP_REASON_TERMINATED,
            environment_reward=float(number),
        )
        history = trajectory.histories.add()
        history.messages.add(role=trajectory_pb2.ROLE_USER, content="Say something long.")
        history.messages.add(role=trajectory_pb2.ROLE_ASSISTANT, content=text)
    return made


async def ask(
    stub: judge_service_pb2_grpc.JudgeServiceAsyncStub,
    attempts: trajectory_pb2.Group,
    *scorers: spec_pb2.Scorer,
    **options: Any,
) -> judge_service_pb2.ScoreGroupResponse:
    request = judge_service_pb2.ScoreGroupRequest(
        group=attempts, reward=spec_pb2.RewardSpec(scorers=scorers)
    )
    with rpc_errors("judge"):
        return await stub.ScoreGroup(request, **{"timeout": 60.0, **options})


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
    ruler = spec_pb2.RulerSpec(judges=[judge, spec_pb2.JudgeModel()], max_job_tokens=400)
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
    spent = judge_service_pb2.JudgeUsage(prompt_tokens=400)
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
