"""RULER asked in both orders: what a judge gives for a place cancels."""

from __future__ import annotations

import httpx
import pytest
from podium.types.v1 import spec_pb2
from prometheus_client import REGISTRY
from support.fake_judge import Answer, Behaviour, FakeJudge, completion, says, scores, shown
from support.judging import JudgeBench, by_number, group_of, model, rewards

ATTEMPTS = ("answer 3", "answer 9", "answer 1")
BOTH = spec_pb2.RulerSpec(both_orders=True)


@pytest.fixture
def bench(judge: FakeJudge, client: httpx.AsyncClient) -> JudgeBench:
    return JudgeBench(judge, client)


def by_place(weight: float) -> Behaviour:
    """A judge of whose score `weight` is for the place, from 0 for the first to 1 for the last."""

    def behave(request: dict[str, object]) -> Answer:
        texts = list(shown(request).values())
        places = {text: n / (len(texts) - 1) for n, text in enumerate(texts)}
        given = scores(lambda text: (1 - weight) * by_number(text) + weight * places[text])
        return given(request)

    return behave


async def test_a_judge_that_sees_places_alone_ranks_nobody(bench: JudgeBench) -> None:
    bench.judge.then(by_place(1.0))
    one = await bench.score(group_of(*ATTEMPTS), spec_pb2.RulerSpec(model="other"))
    assert sorted(x or 0 for x in rewards(one)) == pytest.approx([0, 0.5, 1])
    both = await bench.score(group_of(*ATTEMPTS), BOTH)
    assert rewards(both) == pytest.approx([0.5, 0.5, 0.5])


async def test_what_a_place_is_worth_cancels_and_what_was_said_stays(bench: JudgeBench) -> None:
    bench.judge.then(by_place(0.4))
    answer = await bench.ask(group_of(*ATTEMPTS), BOTH)
    assert rewards(answer.group) == pytest.approx([0.2 + 0.6 * x for x in (0.3, 0.9, 0.1)])
    first, second = answer.group.judgements[0].opinions
    assert [4 - each.place for each in first.attempts] == [each.place for each in second.attempts]
    orders = [list(shown(request).values()) for request in bench.judge.requests]
    assert orders[0] == orders[1][::-1]
    assert (answer.usage.calls, first.calls, second.calls) == (2, 1, 1)
    assert len(answer.group.trajectories[0].explanation.splitlines()) == 2
    # An unbiased judge's two correlations would cancel; what is left is the bias.
    assert first.position_correlation + second.position_correlation > 0.1


async def test_how_far_the_orders_differ_is_measured(bench: JudgeBench) -> None:
    def total() -> float:
        name = "podium_judge_order_difference_ratio_sum"
        return REGISTRY.get_sample_value(name, {"model": "m"}) or 0

    before = total()
    bench.judge.then(by_place(0.3))
    await bench.score(group_of("answer 1", "answer 2"), BOTH)
    # Of two places, each attempt has both: 0.3 apart.
    assert total() - before == pytest.approx(0.3)
    bench.judge.then(scores(by_number))
    await bench.score(group_of("answer 4", "answer 5"), BOTH)
    assert total() - before == pytest.approx(0.3)


async def test_both_orders_are_known_apart_from_one_and_from_each_other(bench: JudgeBench) -> None:
    bench.judge.then(scores(by_number))
    await bench.score(group_of(*ATTEMPTS))
    answer = await bench.ask(group_of(*ATTEMPTS), BOTH)
    assert (answer.usage.calls, answer.usage.cached) == (1, 1)
    assert (await bench.ask(group_of(*ATTEMPTS), BOTH)).usage.cached == 2


async def test_a_judge_that_fails_in_one_order_has_failed(
    bench: JudgeBench, other_judge: FakeJudge
) -> None:
    useless = says("no")
    bench.judge.then(scores(by_number), useless)
    skipped = await bench.score(group_of(*ATTEMPTS), BOTH)
    assert skipped.skip_reason == "judge_failed"
    assert [bool(each.failure) for each in skipped.judgements[0].opinions].count(True) == 1
    other_judge.then(scores(by_number))
    bench.judge.then(useless)
    spec = spec_pb2.RulerSpec(both_orders=True, fallbacks=[model(other_judge)])
    scored = await bench.score(group_of("answer 3", "answer 8"), spec)
    assert rewards(scored) == pytest.approx([0.3, 0.8])
    assert len(scored.judgements[0].opinions) == 4


async def test_a_single_attempt_has_one_order(bench: JudgeBench) -> None:
    bench.judge.then(lambda _: completion('{"scores": [{"attempt_id": "1", "score": 0.5}]}'))
    answer = await bench.ask(group_of("answer 3"), BOTH)
    assert rewards(answer.group) == [0.5]
    assert answer.usage.calls == 1
