"""What calls of scorers over HTTP cost."""

from __future__ import annotations

import math

import httpx
import pytest
from podium.core.contract import validate
from podium.types.v1 import spec_pb2
from prometheus_client import REGISTRY
from support.fake_judge import FakeJudge
from support.http_scoring import POOLING, Bench, answers, rewarding
from support.judging import group_of


@pytest.fixture
def bench(judge: FakeJudge, other_judge: FakeJudge, client: httpx.AsyncClient) -> Bench:
    return Bench(judge, other_judge, client)


def spent(label: str = "other") -> float:
    return REGISTRY.get_sample_value("podium_judge_cost_total", {"model": label}) or 0.0


async def test_each_answered_call_costs_its_price(bench: Bench) -> None:
    bench.scorer.then(answers({"scores": [1, 2]}))
    before = spent()
    answer = await bench.rewarded(group_of("answer 3", "answer 9"), bench.spec(call_price=0.25))
    assert (answer.usage.calls, answer.usage.cost) == (1, 0.25)
    assert answer.group.judgements[0].opinions[0].cost == 0.25
    assert spent() - before == pytest.approx(0.25)
    # A reward model is asked about each conversation, and none twice.
    bench.scorer.then(rewarding(lambda number: number))
    group = group_of("answer 3", "answer 9", "answer 3")
    answer = await bench.rewarded(group, bench.spec(POOLING, call_price=0.25))
    assert (answer.usage.calls, answer.usage.cost) == (2, 0.5)


async def test_who_answers_nonsense_is_paid_and_who_refuses_is_not(bench: Bench) -> None:
    bench.scorer.then(answers({"scores": "all"}))
    answer = await bench.rewarded(group_of("answer 3"), bench.spec(call_price=0.25))
    assert (answer.group.skip_reason, answer.usage.cost) == ("judge_failed", 0.25)
    assert answer.group.judgements[0].opinions[0].cost == 0.25
    bench.scorer.then(answers({"error": "no"}, 422))
    answer = await bench.rewarded(group_of("answer 3"), bench.spec(call_price=0.25))
    assert (answer.usage.calls, answer.usage.cost) == (1, 0)


async def test_without_a_price_no_cost_is_told_and_zero_is_a_price(bench: Bench) -> None:
    bench.scorer.then(answers({"scores": [1]}))
    answer = await bench.rewarded(group_of("answer 3"), bench.spec())
    assert not answer.group.judgements[0].opinions[0].HasField("cost")
    answer = await bench.rewarded(group_of("answer 3"), bench.spec(call_price=0))
    assert answer.group.judgements[0].opinions[0].HasField("cost")
    assert answer.usage.cost == 0


async def test_its_calls_count_against_the_bound_of_a_judge_beside_it(bench: Bench) -> None:
    bench.scorer.then(answers({"scores": [1, 2]}))
    priced = {"prompt_price": 1e-3, "completion_price": 0.0, "base_url": bench.judge.base_url}
    ruler = spec_pb2.RulerSpec(judges=[spec_pb2.JudgeModel(model="m", **priced)], max_job_cost=0.2)
    both = (
        bench.spec(call_price=0.25),
        spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER, ruler=ruler, weight=1),
    )
    answer = await bench.rewarded(group_of("answer 3", "answer 9"), *both)
    assert answer.group.skip_reason == "judge_budget"
    assert "have cost 0.25 of 0.2" in answer.group.trajectories[0].explanation


@pytest.mark.parametrize("price", [-0.01, math.nan, math.inf, -math.inf, 1e7])
def test_a_price_that_is_none_is_refused_by_name(price: float) -> None:
    spec = spec_pb2.HttpScorerSpec(base_url="http://scorer", call_price=price)
    (found,) = validate(spec)
    assert found.field == "call_price"
    assert "allowed" in found.description
