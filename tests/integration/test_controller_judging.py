"""What a job does when its judges may spend no more, or have no answer; over real gRPC.

The controller and the judge service are real, the judge model is a scripted API.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from podium.core.errors import InvalidArgumentError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.kit.rpc import rpc_errors
from podium.types.v1 import spec_pb2
from support.controlled import (
    ATTEMPTS,
    GROUPS,
    Client,
    assert_every_step_once,
    running_controller,
    small_job,
)
from support.controlled_fixtures import client, fleet, registry
from support.fake_judge import (
    NEVER,
    Answer,
    FakeJudge,
    completion,
    costing,
    fails,
    fake_judge,
    scores,
    shown,
    slow,
)
from support.fleet import Fleet
from support.fleet_doubles import Point

__all__ = ["client", "fleet", "registry"]

HONEST = scores(lambda text: len(text) / 1000)
READS, WRITES = 1000, 16
TOKENS = GROUPS * (READS + WRITES)
"""What the judge of one step uses."""
ENOUGH = TOKENS + 1500
"""For that step and for none after it: a question can take more than it does."""


@pytest.fixture
def model() -> Iterator[FakeJudge]:
    with fake_judge() as running:
        yield running


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> None:
    """A judge service that asks once, and tells: what it repeats itself is tested with it."""
    monkeypatch.setenv("PODIUM_JUDGE_REQUEST_ATTEMPTS", "1")
    monkeypatch.setenv("PODIUM_JUDGE_TELL_FAILURES", "true")
    fleet.judge.forget()


def ruled_job(model: FakeJudge, steps: int = 1, **changes: Any) -> spec_pb2.JobSpec:
    """Scored by RULER alone."""
    judge = spec_pb2.JudgeModel(base_url=model.base_url, model="m", max_completion_tokens=WRITES)
    ruler = spec_pb2.RulerSpec(judges=[judge], max_job_tokens=changes.pop("max_job_tokens", 0))
    scorer = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER, ruler=ruler)
    return small_job(steps, reward=spec_pb2.RewardSpec(scorers=[scorer]), **changes)


async def test_t26_h_what_a_job_has_spent_outlives_controller_and_judge(
    fleet: Fleet, model: FakeJudge
) -> None:
    model.then(costing(READS, WRITES, HONEST))
    second = fleet.hold("judge:begin", "/s2/g0")
    async with running_controller(fleet) as client:
        await client.create(ruled_job(model, 3, max_job_tokens=ENOUGH), "outlives")
        await second.reached()
    fleet.judge.forget()
    second.release()
    async with running_controller(fleet) as client:
        failed = await client.state("outlives", pb.JOB_STATE_FAILED)
    assert failed.failure_reason == "JUDGE_BUDGET_SPENT"
    assert f"have used {TOKENS} tokens of {ENOUGH}" in failed.failure_message
    assert len(model.requests) == GROUPS


@pytest.mark.usefixtures("hasty")
async def test_a_judge_that_refuses_or_is_busy_is_waited_for_and_costs_no_group(
    fleet: Fleet, client: Client, model: FakeJudge
) -> None:
    refuses = [fails(status) for status in (402, 403, 404, 503)]
    model.then(*refuses, *[fails(429)] * 2 * GROUPS, HONEST)
    await client.create(ruled_job(model, 2), "busy")
    await client.succeeded("busy")
    await assert_every_step_once(fleet, client, "busy", 2)
    assert set(fleet.rollout.collected.values()) == {1}
    told = [e.message for e in await client.events("busy") if e.type == pb.EVENT_TYPE_RECOVERY]
    refused = "judge is lost (judge is unavailable: the judge endpoint refused with HTTP 402"
    assert told[0].startswith(refused)
    assert told[-1].startswith("judge is back")
    assert all(t.HasField("reward") for t in await client.trajectories("busy"))


@pytest.fixture
def unnamed(monkeypatch: pytest.MonkeyPatch, fleet: Fleet, model: FakeJudge) -> FakeJudge:
    """The judge service's default API, at which no model is named."""
    monkeypatch.setenv("PODIUM_JUDGE_BASE_URL", model.base_url)
    monkeypatch.setenv("PODIUM_JUDGE_REQUEST_ATTEMPTS", "1")
    fleet.judge.forget()
    model.then(HONEST)
    return model


def unconfigured_job(ruler: spec_pb2.RulerSpec) -> spec_pb2.JobSpec:
    scorer = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER, ruler=ruler)
    return small_job(2, reward=spec_pb2.RewardSpec(scorers=[scorer]), recovery_timeout_seconds=1)


async def test_a_job_whose_policy_would_judge_itself_is_refused(
    client: Client, unnamed: FakeJudge, model: FakeJudge
) -> None:
    unnamed.headers = {"x-podium-weight-mode": "merged"}
    with pytest.raises(InvalidArgumentError) as caught:
        await client.create(unconfigured_job(spec_pb2.RulerSpec()), "itself")
    (violation,) = caught.value.violations
    assert violation.field == "job.spec.reward.scorers[0].ruler.model"
    assert "the policy would judge itself" in violation.description
    named = unconfigured_job(spec_pb2.RulerSpec(base_url=model.base_url, model="another"))
    await client.create(named, "another")
    await client.succeeded("another")


@pytest.mark.full
async def test_a_frozen_base_judges_while_policies_come_and_go(
    client: Client, unnamed: FakeJudge
) -> None:
    unnamed.headers = {"x-podium-weight-mode": "adapter"}
    unnamed.models = [
        {"id": "frozen@1", "parent": "base"},
        {"id": "frozen", "parent": "base"},
        {"id": "base", "parent": None},
    ]
    await client.create(unconfigured_job(spec_pb2.RulerSpec()), "frozen")
    await client.succeeded("frozen")
    assert {each["model"] for each in unnamed.requests} == {"base"}


@pytest.mark.long
async def test_half_a_character_of_a_judge_ends_nothing(client: Client, model: FakeJudge) -> None:
    def halves(request: dict[str, Any]) -> Answer:
        entries = [
            {"attempt_id": label, "explanation": "\ud800 and \0", "score": len(text) / 1000}
            for label, text in shown(request).items()
        ]
        body = json.loads(completion(json.dumps({"scores": entries})).body)
        body["usage"] = {"prompt_tokens": 2**80, "completion_tokens": 1e999}
        return Answer(body=json.dumps(body).encode())

    model.then(halves)
    await client.create(ruled_job(model, 2), "halves")
    await client.succeeded("halves")
    told = {attempt.explanation for attempt in await client.trajectories("halves")}
    assert told == {"\ufffd and \ufffd"}


def breaks(point: str, *abouts: str) -> Point:
    async def at(reached: str, about: str) -> None:
        if reached == point and about.endswith(abouts):
            raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")

    return at


async def test_a_defect_that_shows_on_one_group_costs_that_group(
    fleet: Fleet, client: Client, model: FakeJudge
) -> None:
    model.then(HONEST)
    fleet.at = breaks("judge:begin", "/s1/g0")
    job = "one-judge"
    await client.create(ruled_job(model, 2), job)
    await client.succeeded(job)
    attempts = await client.trajectories(job)
    without = [t for t in attempts if not t.HasField("reward")]
    assert {t.group_id.partition("/")[2] for t in without} == {"s1/g0"}
    assert len(without) == ATTEMPTS
    told = [e.message for e in await client.events(job) if e.type == pb.EVENT_TYPE_WARNING]
    (warning,) = [text for text in told if "is skipped. The judge says" in text]
    assert f"{job}/s1/g0" in warning
    assert "internal error; the server's log has it under error id" in warning
    assert "surrogates" not in warning


async def test_a_judge_that_is_too_slow_is_one_that_gives_no_answer(
    fleet: Fleet, model: FakeJudge
) -> None:
    model.then(slow(HONEST, NEVER))
    async with running_controller(fleet, judge_seconds=0.3) as client:
        await client.create(ruled_job(model, recovery_timeout_seconds=1), "slow")
        failed = await client.state("slow", pb.JOB_STATE_FAILED)
    assert failed.failure_reason == "JUDGE_UNAVAILABLE"
    assert fleet.trainer.taken == []


async def test_a_judge_budget_that_no_question_fits_is_refused_as_the_request_to_resume_has_it(
    client: Client, fleet: Fleet, model: FakeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "PODIUM_JUDGE_KEY_OWN"
    monkeypatch.setenv(key, "k")
    monkeypatch.setenv("PODIUM_JUDGE_PRICES", json.dumps({"m": [1, 1]}))
    monkeypatch.setenv("PODIUM_JUDGE_TRUSTED_BASE_URLS", json.dumps([model.base_url]))
    fleet.judge.forget()
    fleet.hold("judge:begin")
    spec = ruled_job(model)
    spec.reward.scorers[0].ruler.judges[0].api_key_env = key
    await client.create(spec, "richer")

    async def resume(cost: float) -> pb.Job:
        budget = spec_pb2.BudgetSpec(max_judge_cost=cost)
        with rpc_errors("controller"):
            request = pb.ResumeJobRequest(job_id="richer", budget=budget)
            return (await client.stub.ResumeJob(request)).job

    with pytest.raises(InvalidArgumentError, match="allowed is at least") as refused:
        await resume(1e-4)
    assert refused.value.reason == "INVALID_BUDGET"
    assert [each.field for each in refused.value.violations] == ["budget.max_judge_cost"]
    # Of a key that is gone no budget is to blame, and the request has no field for it.
    monkeypatch.delenv(key)
    assert (await resume(9)).spec.budget.max_judge_cost == 9
    monkeypatch.delenv("PODIUM_JUDGE_PRICES")
    monkeypatch.setenv(key, "k")
    fleet.judge.forget()
    with pytest.raises(InvalidArgumentError, match="has no price") as refused:
        await resume(9)
    assert [each.field for each in refused.value.violations] == ["budget.max_judge_cost"]
