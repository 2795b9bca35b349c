"""T26 (j): several judges, how much they agree, and what they cost."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from podium.core.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from podium.types.v1 import spec_pb2
from podium_judge.domain.agreement import kendall_w, ranks
from podium_judge.domain.position import PositionBias, correlation
from prometheus_client import REGISTRY
from support.fake_judge import Behaviour, FakeJudge, fails, says, scores, shown
from support.judging import JudgeBench, by_number, group_of, model, rewards

HONEST = scores(by_number)
UPSIDE_DOWN = scores(lambda text: 1 - by_number(text))
ATTEMPTS = ("answer 3", "answer 9", "answer 1")


@pytest.fixture
def bench(judge: FakeJudge, client: httpx.AsyncClient) -> JudgeBench:
    return JudgeBench(judge, client)


def by_model(**behaviours: Behaviour) -> Behaviour:
    """One server that plays several models."""
    return lambda request: behaviours[request["model"]](request)


def panel(judge: FakeJudge, *names: str, **fields: Any) -> spec_pb2.RulerSpec:
    return spec_pb2.RulerSpec(judges=[model(judge, name) for name in names], **fields)


def constant(value: float) -> Behaviour:
    return scores(lambda text: value)


@pytest.mark.parametrize(
    ("combination", "expected"),
    [
        (spec_pb2.PANEL_COMBINATION_UNSPECIFIED, [0.4, 0.6, 1 / 3]),
        (spec_pb2.PANEL_COMBINATION_MEAN, [0.4, 0.6, 1 / 3]),
        (spec_pb2.PANEL_COMBINATION_MEDIAN, [0.3, 0.9, 0.1]),
    ],
)
async def test_t26_j_a_panels_scores_are_combined(
    bench: JudgeBench, combination: Any, expected: list[float]
) -> None:
    odd = {0: 0.6, 1: 0.0, 2: 0.8}
    bench.judge.then(
        by_model(
            a=HONEST,
            b=HONEST,
            c=scores(lambda t: next(v for n, v in odd.items() if ATTEMPTS[n] in t)),
        )
    )
    scored = await bench.score(
        group_of(*ATTEMPTS), panel(bench.judge, "a", "b", "c", combination=combination)
    )
    assert rewards(scored) == pytest.approx(expected)


async def test_t26_j_agreement_and_each_judges_words_are_told(bench: JudgeBench) -> None:
    bench.judge.then(by_model(a=HONEST, b=UPSIDE_DOWN, c=HONEST))
    before = REGISTRY.get_sample_value("podium_judge_agreement_ratio_count") or 0
    scored = await bench.score(group_of(*ATTEMPTS), panel(bench.judge, "a", "b"))
    assert scored.judgements[0].agreement == pytest.approx(0.0)
    words = scored.trajectories[0].explanation.splitlines()
    assert [line.split(":")[0] for line in words] == ["a", "b"]
    scored = await bench.score(group_of(*ATTEMPTS), panel(bench.judge, "a", "c"))
    assert scored.judgements[0].agreement == pytest.approx(1.0)
    assert REGISTRY.get_sample_value("podium_judge_agreement_ratio_count") == before + 2
    scored = await bench.score(group_of(*ATTEMPTS), panel(bench.judge, "a"))
    assert not scored.judgements[0].HasField("agreement")


async def test_t26_j_judges_that_do_not_rank_have_no_agreement(bench: JudgeBench) -> None:
    bench.judge.then(by_model(a=constant(0.5), b=constant(0.7)))
    scored = await bench.score(group_of(*ATTEMPTS), panel(bench.judge, "a", "b"))
    assert rewards(scored) == pytest.approx([0.6] * 3)
    assert not scored.judgements[0].HasField("agreement")


async def test_t26_j_each_judge_sees_an_order_of_its_own(bench: JudgeBench) -> None:
    bench.judge.then(HONEST)
    attempts = [f"answer {number}" for number in range(8)]
    scored = await bench.score(group_of(*attempts), panel(bench.judge, "a", "b", "c"))
    orders = {tuple(a.place for a in opinion.attempts) for opinion in scored.judgements[0].opinions}
    assert len(orders) == 3


async def test_t26_j_the_same_judge_thrice_is_asked_thrice(bench: JudgeBench) -> None:
    bench.judge.then(constant(0.1), constant(0.3), constant(0.5))
    scored = await bench.score(group_of(*ATTEMPTS), panel(bench.judge, "a", "a", "a"))
    assert rewards(scored) == pytest.approx([0.3] * 3)
    assert len(bench.judge.requests) == 3


BROKEN: dict[str, Behaviour] = {
    "useless": says("no"),
    "unreachable": fails(503),
    "wrong key": fails(403),
    "refused": fails(400, "policy"),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_t26_j_a_judge_that_fails_is_left_out_with_its_reason(
    bench: JudgeBench, broken: Behaviour
) -> None:
    bench.judge.then(by_model(a=HONEST, b=broken, c=HONEST))
    scored = await bench.score(group_of(*ATTEMPTS), panel(bench.judge, "a", "b", "c"))
    assert rewards(scored) == [0.3, 0.9, 0.1]
    failures = [opinion.failure for opinion in scored.judgements[0].opinions]
    assert [bool(failure) for failure in failures] == [False, True, False]
    assert scored.judgements[0].agreement == pytest.approx(1.0)


async def test_t26_j_fewer_than_the_quorum_skip_the_group(bench: JudgeBench) -> None:
    bench.judge.then(by_model(a=HONEST, b=says("no"), c=says("no")))
    scored = await bench.score(group_of(*ATTEMPTS), panel(bench.judge, "a", "b", "c"))
    assert scored.skip_reason == "judge_failed"
    assert rewards(scored) == [None] * 3
    scored = await bench.score(group_of(*ATTEMPTS), panel(bench.judge, "a", "b", "c", quorum=1))
    assert rewards(scored) == [0.3, 0.9, 0.1]


async def test_t26_j_fallbacks_fill_the_quorum_and_no_more(bench: JudgeBench) -> None:
    bench.judge.then(by_model(a=HONEST, b=says("no"), c=says("no"), d=HONEST, e=HONEST))
    spec = panel(bench.judge, "a", "b", "c")
    spec.fallbacks.extend([model(bench.judge, "d"), model(bench.judge, "e")])
    scored = await bench.score(group_of(*ATTEMPTS), spec)
    assert rewards(scored) == [0.3, 0.9, 0.1]
    assert [opinion.model for opinion in scored.judgements[0].opinions] == ["a", "b", "c", "d"]


async def test_t26_j_the_call_fails_only_when_no_judge_answered(bench: JudgeBench) -> None:
    bench.judge.then(by_model(a=fails(401), b=fails(503)))
    with pytest.raises(UnavailableError):
        await bench.score(group_of(*ATTEMPTS), panel(bench.judge, "a", "b"))
    bench.judge.then(fails(401))
    with pytest.raises(FailedPreconditionError):
        await bench.score(group_of(*ATTEMPTS), panel(bench.judge, "a", "b"))


async def test_t26_j_what_each_judge_cost_is_told(bench: JudgeBench) -> None:
    bench.judge.then(HONEST)
    spec = spec_pb2.RulerSpec(
        judges=[
            model(bench.judge, "a", prompt_price=1000, completion_price=2000),
            model(bench.judge, "b"),
        ]
    )
    response = await bench.ask(group_of(*ATTEMPTS), spec)
    first, second = response.group.judgements[0].opinions
    assert first.cost == pytest.approx((100 * 1000 + 10 * 2000) / 1e6)
    assert not second.HasField("cost")
    assert (first.calls, first.prompt_tokens, first.completion_tokens) == (1, 100, 10)
    assert (response.usage.calls, response.usage.prompt_tokens) == (2, 200)
    assert response.usage.cost == pytest.approx(first.cost)


async def test_t26_j_a_request_carries_the_judges_own_parameters(bench: JudgeBench) -> None:
    bench.judge.then(HONEST)
    judge = model(bench.judge, "a", temperature=0.7, max_completion_tokens=99)
    judge.extra_body.update({"reasoning_effort": "low", "seed": 7})
    await bench.score(group_of(*ATTEMPTS), spec_pb2.RulerSpec(judges=[judge]))
    (request,) = bench.judge.requests
    assert (request["temperature"], request["max_completion_tokens"]) == (0.7, 99)
    assert request["reasoning_effort"] == "low"
    assert repr(request["seed"]) == "7"
    assert shown(request)


async def test_t26_j_judges_that_contradict_each_other_are_all_named(bench: JudgeBench) -> None:
    spec = panel(bench.judge, "a", model="b", quorum=3)
    spec.judges[0].extra_body.update({"messages": []})
    spec.fallbacks.add(base_url="ftp://x")
    spec.fallbacks.add(prompt_price=1)
    spec.quorum = 4
    with pytest.raises(InvalidArgumentError) as caught:
        await bench.score(group_of(*ATTEMPTS), spec)
    assert [v.field.removeprefix("reward.scorers[0].ruler.") for v in caught.value.violations] == [
        "model",
        "quorum",
        "judges[0].extra_body.messages",
        "fallbacks[0].base_url",
        "fallbacks[1].completion_price",
    ]


def test_t26_j_kendalls_w_of_a_known_table() -> None:
    # Siegel and Castellan's executives: three judges rank six applicants.
    judges = [[1, 6, 3, 2, 5, 4], [1, 5, 6, 4, 2, 3], [6, 3, 2, 5, 4, 1]]
    assert kendall_w(judges) == pytest.approx(0.16, abs=0.005)


def spearman(a: list[float], b: list[float]) -> float:
    return statistics.correlation(ranks(a), ranks(b))


@given(st.lists(st.permutations(range(5)), min_size=2, max_size=5))
def test_t26_j_kendalls_w_is_the_mean_of_spearmans_correlations(judges: list[list[int]]) -> None:
    rows = [[float(value) for value in row] for row in judges]
    mean = statistics.fmean(spearman(a, b) for a, b in itertools.combinations(rows, 2))
    w = kendall_w(rows)
    assert w is not None
    assert (len(rows) * w - 1) / (len(rows) - 1) == pytest.approx(mean)


@given(
    st.integers(2, 4).flatmap(
        lambda n: st.lists(
            st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=n, max_size=n), min_size=2
        )
    )
)
def test_t26_j_kendalls_w_stays_in_bounds_with_ties(judges: list[list[float]]) -> None:
    w = kendall_w(judges)
    flat = all(len(set(row)) == 1 for row in judges)
    assert (w is None) == flat
    assert w is None or 0 <= w <= 1
    if not flat and all(row == judges[0] for row in judges):
        assert w == pytest.approx(1)


def test_t26_c_the_variance_of_the_position_statistic_is_that_over_all_orders() -> None:
    values = [0.1, 0.9, 0.4, 0.4]
    found = []
    for order in itertools.permutations(range(1, 5)):
        one = PositionBias()
        one.add(order, values)
        found.append(one.covariance)
    assert statistics.fmean(found) == pytest.approx(0, abs=1e-12)
    assert statistics.pvariance(found) == pytest.approx(one.variance)


def test_t26_c_the_slope_is_the_gain_from_first_to_last() -> None:
    bias = PositionBias()
    bias.add((1, 2, 3), (0.2, 0.4, 0.6))
    bias.add((1,), (1.0,))
    bias.add((2, 1), (0.9, 0.5))
    assert bias.slope == pytest.approx(0.4)
    assert bias.z == pytest.approx((0.2 + 0.2) / math.sqrt(0.5 * 0.08 / 2 + 0.5 * 0.08))
    assert PositionBias().z == PositionBias().slope == 0
    assert correlation((1, 2), (0.5, 0.5)) is None
