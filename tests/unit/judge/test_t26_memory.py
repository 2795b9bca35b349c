"""T26 (g) and (h): known answers, and what a job may spend."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import httpx
import pytest
from podium.core.errors import InvalidArgumentError
from podium.judge.v1 import judge_service_pb2
from podium.types.v1 import spec_pb2, trajectory_pb2
from prometheus_client import REGISTRY
from support.fake_judge import NEVER, Answer, FakeJudge, costing, says, scores, slow
from support.judging import JudgeBench, by_number, group_of, model, rewards
from support.waiting import eventually

HONEST = scores(by_number)
ROOM = 2000
"""More than a question of these tests can take: a token a byte, a template's and the answer's."""


@pytest.fixture
def bench(judge: FakeJudge, client: httpx.AsyncClient) -> JudgeBench:
    judge.then(HONEST)
    return JudgeBench(judge, client, max_completion_tokens=16)


def asked(source: str) -> float:
    labels = {"source": source}
    return REGISTRY.get_sample_value("podium_judge_questions_total", labels) or 0.0


async def test_t26_g_the_same_contents_are_asked_once(bench: JudgeBench) -> None:
    before = asked("cached")
    first = await bench.ask(group_of("answer 3", "answer 9"))
    again = await bench.ask(group_of("answer 9", "answer 3", group="job/s2/g5"))
    assert rewards(first.group) == [0.3, 0.9]
    assert rewards(again.group) == [0.9, 0.3]
    assert len(bench.judge.requests) == 1
    assert (first.usage.calls, first.usage.cached) == (1, 0)
    assert (again.usage.calls, again.usage.prompt_tokens, again.usage.cached) == (0, 0, 1)
    opinion = again.group.judgements[0].opinions[0]
    assert opinion.cached
    assert opinion.calls == 0
    assert asked("cached") == before + 1


async def test_t26_g_a_known_answer_is_told_like_a_new_one(bench: JudgeBench) -> None:
    made = group_of("answer 3", "answer 9")
    first, again = [await bench.score(made) for _ in range(2)]
    for group in (first, again):
        for opinion in group.judgements[0].opinions:
            for spent in ("cached", "calls", "prompt_tokens", "completion_tokens"):
                opinion.ClearField(spent)
    assert again == first


ANOTHER: dict[str, dict[str, Any]] = {
    "rubric": {"rubric": "Shorter is better."},
    "model": {"model": "m2"},
    "prompt": {"max_prompt_tokens": 1000},
    "temperature": {"judges": [spec_pb2.JudgeModel(temperature=0.5)]},
    "answer": {"judges": [spec_pb2.JudgeModel(max_completion_tokens=100)]},
}


@pytest.mark.parametrize("fields", ANOTHER.values(), ids=ANOTHER)
async def test_t26_g_another_question_is_asked(bench: JudgeBench, fields: dict[str, Any]) -> None:
    made = group_of("answer 3", "answer 9")
    await bench.score(made)
    await bench.score(made, spec_pb2.RulerSpec(**fields))
    assert len(bench.judge.requests) == 2
    await bench.score(made, spec_pb2.RulerSpec(**fields))
    assert len(bench.judge.requests) == 2


async def test_t26_g_other_contents_are_asked(bench: JudgeBench) -> None:
    await bench.score(group_of("answer 3", "answer 9"))
    await bench.score(group_of("answer 3", "answer 9", "answer 1"))
    await bench.score(group_of("answer 3", "answer  9"))
    with_tools = group_of("answer 3", "answer 9")
    with_tools.trajectories[0].histories[0].tools.add(name="count")
    await bench.score(with_tools)
    assert len(bench.judge.requests) == 4


async def test_t26_g_failures_are_not_kept(bench: JudgeBench) -> None:
    bench.judge.then(says("no"), says("no"), HONEST)
    assert (await bench.score(group_of("answer 3", "answer 9"))).skip_reason == "judge_failed"
    assert rewards(await bench.score(group_of("answer 3", "answer 9"))) == [0.3, 0.9]


async def test_t26_g_the_cache_is_bounded(judge: FakeJudge, client: httpx.AsyncClient) -> None:
    judge.then(HONEST)
    bench = JudgeBench(judge, client, cache_entries=2)
    for last in (1, 2, 1, 3, 1, 2):
        await bench.score(group_of("answer 9", f"answer {last}"))
    # 1 is used again each time, so it stays; 2 made room for 3.
    assert len(judge.requests) == 4


async def test_t26_g_the_same_question_at_once_is_asked_once_and_paid_once(
    bench: JudgeBench,
) -> None:
    all_ask = threading.Event()

    def held(request: dict[str, Any]) -> Answer:
        all_ask.wait()
        return HONEST(request)

    bench.judge.then(held)
    joined = asked("joined")
    asking = asyncio.gather(
        *(bench.ask(group_of("answer 3", "answer 9", group=f"job/s1/g{n}")) for n in range(5))
    )
    try:
        await eventually(lambda: asked("joined") == joined + 4)
    finally:
        all_ask.set()
    answers = await asking
    assert [rewards(answer.group) for answer in answers] == [[0.3, 0.9]] * 5
    assert len(bench.judge.requests) == 1
    assert sorted(answer.usage.calls for answer in answers) == [0, 0, 0, 0, 1]
    assert asked("joined") == joined + 4


async def test_t26_g_who_gives_up_does_not_take_the_answer_from_others(bench: JudgeBench) -> None:
    given_up = threading.Event()

    def held(request: dict[str, Any]) -> Answer:
        given_up.wait()
        return HONEST(request)

    bench.judge.then(held)
    first = asyncio.create_task(bench.ask(group_of("answer 3", "answer 9")))
    second = asyncio.create_task(bench.ask(group_of("answer 3", "answer 9")))
    await eventually(lambda: len(bench.judge.requests) == 1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    given_up.set()
    assert rewards((await second).group) == [0.3, 0.9]
    assert (await second).usage.calls == 1
    assert len(bench.judge.requests) == 1


async def test_t26_g_when_all_give_up_the_question_is_given_up(bench: JudgeBench) -> None:
    bench.judge.then(slow(HONEST, NEVER), HONEST)
    first = asyncio.create_task(bench.ask(group_of("answer 3", "answer 9")))
    await eventually(lambda: len(bench.judge.requests) == 1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert rewards((await bench.ask(group_of("answer 3", "answer 9"))).group) == [0.3, 0.9]
    assert len(bench.judge.requests) == 2


def numbered(number: int, job: str = "job") -> trajectory_pb2.Group:
    return group_of(f"in group {number} 3", "answer 9", group=f"{job}/s1/g{number}", job=job)


async def test_t26_h_a_job_that_has_spent_its_tokens_is_skipped_without_a_call(
    bench: JudgeBench,
) -> None:
    bench.judge.then(costing(700, 50, HONEST))
    most = 750 + ROOM
    spec = spec_pb2.RulerSpec(max_job_tokens=most)
    skipped = [(await bench.score(numbered(n), spec)).skip_reason for n in range(4)]
    assert skipped == ["", "", "judge_budget", "judge_budget"]
    assert len(bench.judge.requests) == 2
    scored = await bench.score(numbered(9), spec)
    assert rewards(scored) == [None, None]
    words = f"not scored: the job's judges have used 1500 tokens of {most} (max_job_tokens)"
    assert scored.trajectories[0].explanation.startswith(words)
    assert (await bench.score(numbered(0, "another"), spec)).skip_reason == ""


async def test_t26_h_a_job_that_has_spent_its_money_is_skipped(bench: JudgeBench) -> None:
    bench.judge.then(costing(1000, 16, HONEST))
    judge = spec_pb2.JudgeModel(
        prompt_price=2000, completion_price=10_000, max_completion_tokens=16
    )
    spec = spec_pb2.RulerSpec(judges=[judge], max_job_cost=6.5)
    first = await bench.ask(numbered(0), spec)
    assert first.usage.cost == pytest.approx(2.16)
    assert first.group.judgements[0].opinions[0].cost == pytest.approx(2.16)
    assert (await bench.score(numbered(1), spec)).skip_reason == ""
    scored = await bench.score(numbered(2), spec)
    assert scored.skip_reason == "judge_budget"
    assert "have cost 4.32 of 6.5 (max_job_cost)" in scored.trajectories[0].explanation


async def test_t26_h_what_other_replicas_spent_counts_when_the_caller_says_so(
    bench: JudgeBench,
) -> None:
    spec = spec_pb2.RulerSpec(max_job_tokens=1000 + ROOM)
    elsewhere = judge_service_pb2.JudgeUsage(prompt_tokens=900 + ROOM, completion_tokens=100)
    response = await bench.ask(numbered(0), spec, job_usage=elsewhere)
    assert response.group.skip_reason == "judge_budget"
    elsewhere.prompt_tokens = 900
    response = await bench.ask(numbered(0), spec, job_usage=elsewhere)
    assert response.group.skip_reason == ""


@pytest.mark.parametrize("job", ["job", ""])
async def test_t26_h_a_group_that_could_take_more_than_its_grant_is_skipped_without_a_call(
    bench: JudgeBench, job: str
) -> None:
    bench.judge.then(costing(100, 10, HONEST))
    grant = judge_service_pb2.JudgeGrant(tokens=ROOM)
    response = await bench.ask(numbered(0, job=job), grant=grant)
    assert response.group.skip_reason == ""
    grant.tokens = 100
    group = (await bench.ask(numbered(1, job=job), grant=grant)).group
    assert group.skip_reason == "judge_budget"
    assert group.trajectories[0].explanation.startswith(
        "not scored: the judges of this call have used 0 tokens of 100 (the call's grant);"
    )
    # 0 is a bound too: nothing may be judged by a model.
    none = judge_service_pb2.JudgeGrant(tokens=0)
    response = await bench.ask(numbered(2, job=job), grant=none)
    assert response.group.skip_reason == "judge_budget"
    assert len(bench.judge.requests) == 1


async def test_t26_h_the_operators_bound_holds_for_jobs_without_one(
    judge: FakeJudge, client: httpx.AsyncClient
) -> None:
    judge.then(costing(ROOM - 500, 10, HONEST))
    bench = JudgeBench(judge, client, max_job_tokens=ROOM, max_completion_tokens=16)
    generous = spec_pb2.RulerSpec(max_job_tokens=1_000_000)
    assert (await bench.score(numbered(0), generous)).skip_reason == ""
    assert (await bench.score(numbered(1), generous)).skip_reason == "judge_budget"
    assert (await bench.score(numbered(2))).skip_reason == "judge_budget"
    assert (await bench.score(numbered(2, job=""))).skip_reason == ""


async def test_t26_h_what_failed_answers_cost_counts_too(bench: JudgeBench) -> None:
    bench.judge.then(costing(1000, 16, says("no")))
    # Room for a question and its repair; for a third only if these had cost nothing.
    spec = spec_pb2.RulerSpec(max_job_tokens=1400 + ROOM)
    failed = await bench.ask(numbered(0), spec)
    assert failed.usage.prompt_tokens + failed.usage.completion_tokens == 2032
    assert (await bench.score(numbered(1), spec)).skip_reason == "judge_budget"


async def test_answers_without_usage_count_against_the_budget(bench: JudgeBench) -> None:
    def silent(request: dict[str, Any]) -> Answer:
        body = json.loads(HONEST(request).body)
        del body["usage"]
        return Answer(body=json.dumps(body).encode())

    bench.judge.then(silent)
    spec = spec_pb2.RulerSpec(max_job_tokens=ROOM)
    first = await bench.ask(numbered(0), spec)
    spent = first.usage.prompt_tokens + first.usage.completion_tokens
    assert 300 < spent < ROOM
    second = (await bench.ask(numbered(1), spec)).group
    assert second.skip_reason == "judge_budget"
    assert f"have used {spent} tokens of {ROOM}" in second.trajectories[0].explanation


async def test_t26_h_a_bound_needs_a_job_and_prices(bench: JudgeBench) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await bench.score(numbered(0, job=""), spec_pb2.RulerSpec(max_job_tokens=1))
    assert [v.field for v in caught.value.violations] == ["reward.scorers[0].ruler.max_job_tokens"]
    unpriced = spec_pb2.RulerSpec(
        max_job_cost=1, fallbacks=[model(bench.judge, prompt_price=1, completion_price=1)]
    )
    with pytest.raises(InvalidArgumentError) as caught:
        await bench.score(numbered(0), unpriced)
    (violation,) = caught.value.violations
    assert violation.field == "reward.scorers[0].ruler.max_job_cost"
    assert "reward.scorers[0].ruler has no price" in violation.description


async def test_t26_h_a_price_list_prices_models_by_name(
    judge: FakeJudge, client: httpx.AsyncClient
) -> None:
    judge.then(costing(1_000_000, 500_000, HONEST))
    bench = JudgeBench(judge, client, prices={"priced": [3, 8]})
    response = await bench.ask(numbered(0), spec_pb2.RulerSpec(model="priced"))
    assert response.usage.cost == pytest.approx(7.0)
    cost = REGISTRY.get_sample_value("podium_judge_cost_total", {"model": "priced"})
    assert cost == pytest.approx(7.0)
    free = await bench.ask(numbered(1), spec_pb2.RulerSpec(model="unknown"))
    assert free.usage.cost == 0
    assert not free.group.judgements[0].opinions[0].HasField("cost")
