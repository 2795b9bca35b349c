"""T26 (a), (b), (d): whatever the judge server answers, rewards are right or there are none."""

from __future__ import annotations

from functools import partial
from typing import Any

import httpx
import pytest
from podium.core.errors import UnavailableError
from podium.types.v1 import spec_pb2, trajectory_pb2
from support.fake_judge import (
    NEVER,
    Answer,
    Behaviour,
    FakeJudge,
    completion,
    fails,
    refuses,
    says,
    scores,
    slow,
    truncated,
)
from support.judging import JudgeBench, by_number, group_of, model, rewards
from support.loop_clock import LoopClock

ATTEMPTS = ("answer 3", "answer 9", "answer 1", "answer 5")
RIGHT = [0.3, 0.9, 0.1, 0.5]
HONEST = scores(by_number)


@pytest.fixture
def bench(judge: FakeJudge, client: httpx.AsyncClient) -> JudgeBench:
    return JudgeBench(judge, client)


def spoil(edit: Any) -> Behaviour:
    return scores(by_number, edit=edit)


def put(**fields: Any) -> Behaviour:
    """Honest, but for these fields of the first entry."""
    return spoil(lambda entries: [entries[0] | fields, *entries[1:]])


ORDERS: dict[str, Any] = {
    "as shown": list,
    "reversed": lambda entries: entries[::-1],
    "best first": lambda entries: sorted(entries, key=lambda e: -e["score"]),
    "by id": lambda entries: sorted(entries, key=lambda e: e["attempt_id"]),
}

NOT_JOINED = {
    "missing": spoil(lambda entries: entries[1:]),
    "none": spoil(lambda entries: []),
    "duplicate": spoil(lambda entries: [*entries, entries[0]]),
    "duplicate for missing": spoil(lambda entries: [entries[0], *entries[:-1]]),
    "unknown id": put(attempt_id="99"),
    "no id": spoil(lambda entries: [{"score": e["score"]} for e in entries]),
}

NOT_A_SCORE = {
    "above 1": put(score=7),
    "below 0": put(score=-0.01),
    "NaN": put(score=float("nan")),
    "infinite": put(score=float("inf")),
    "overflow": lambda request: completion('{"scores":[{"attempt_id":"1","score":1e999}]}'),
    "text": put(score="half"),
    "true": put(score=True),
    "null": put(score=None),
}

NOT_AN_ANSWER = {
    "prose": says("Attempt 1 is best: 0.9."),
    "empty": says(""),
    "list": says("[0.3, 0.9, 0.1, 0.5]"),
    "two objects": lambda request: completion('{"scores":[]}{"scores":[]}'),
    "truncated": truncated(HONEST),
}


@pytest.mark.parametrize("group", ["job/s1/g0", "job/s1/g1", "job/s2/g0"])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
async def test_t26_a_scores_are_joined_by_id_in_any_order(
    bench: JudgeBench, group: str, order: Any
) -> None:
    bench.judge.then(spoil(order))
    assert rewards(await bench.score(group_of(*ATTEMPTS, group=group))) == RIGHT


def assert_skipped(scored: trajectory_pb2.Group) -> None:
    assert scored.skip_reason == "judge_failed"
    assert rewards(scored) == [None] * 4
    (judgement,) = scored.judgements
    (opinion,) = judgement.opinions
    assert opinion.failure
    assert not opinion.attempts
    for trajectory in scored.trajectories:
        assert not trajectory.reward_parts
        assert "ruler_score" not in trajectory.metrics
        assert trajectory.explanation.startswith("not scored: the judge's answer: ")


async def repaired_or_skipped(bench: JudgeBench, bad: Behaviour) -> None:
    bench.judge.then(bad, HONEST)
    assert rewards(await bench.score(group_of(*ATTEMPTS))) == RIGHT
    assert len(bench.judge.requests) == 2
    bench.judge.then(bad)
    # Another group: the first one's answer is known by now.
    assert_skipped(await bench.score(group_of(*ATTEMPTS[:3], "answer 6", group="job/s1/g1")))
    assert len(bench.judge.requests) == 2


@pytest.mark.parametrize("bad", NOT_JOINED.values(), ids=NOT_JOINED)
async def test_t26_a_ids_that_cannot_be_joined_are_repaired_or_skip_the_group(
    bench: JudgeBench, bad: Behaviour
) -> None:
    await repaired_or_skipped(bench, bad)


@pytest.mark.parametrize("bad", NOT_A_SCORE.values(), ids=NOT_A_SCORE)
async def test_t26_b_scores_outside_0_to_1_are_repaired_or_skip_the_group(
    bench: JudgeBench, bad: Behaviour
) -> None:
    await repaired_or_skipped(bench, bad)


@pytest.mark.parametrize("bad", NOT_AN_ANSWER.values(), ids=NOT_AN_ANSWER)
async def test_t26_d_answers_that_are_none_are_repaired_or_skip_the_group(
    bench: JudgeBench, bad: Behaviour
) -> None:
    await repaired_or_skipped(bench, bad)


TROUBLES: dict[str, Behaviour] = {
    "429": fails(429, retry_after="0.02"),
    "500": fails(500),
    "503": fails(503, "<html>busy</html>"),
    "slow": slow(HONEST, NEVER),
}


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
async def test_t26_d_passing_trouble_is_retried(
    judge: FakeJudge, client: httpx.AsyncClient, trouble: Behaviour
) -> None:
    bench = JudgeBench(judge, client, request_timeout_seconds=60.0)
    judge.when_never = partial(LoopClock().advance, 60.0)
    judge.then(trouble, trouble, HONEST)
    assert rewards(await bench.score(group_of(*ATTEMPTS))) == RIGHT
    assert len(judge.requests) == 3


async def test_t26_d_a_429_is_not_asked_again_before_its_time(
    judge: FakeJudge, client: httpx.AsyncClient
) -> None:
    bench = JudgeBench(judge, client, max_backoff_seconds=5.0)
    bench.judge.then(fails(429, retry_after="0.4"), HONEST)
    assert rewards(await bench.score(group_of(*ATTEMPTS))) == RIGHT
    first, second = bench.judge.arrivals
    assert second - first >= 0.4


async def test_t26_d_trouble_that_does_not_pass_leaves_no_reward(bench: JudgeBench) -> None:
    bench.judge.then(fails(500))
    with pytest.raises(UnavailableError, match="HTTP 500"):
        await bench.score(group_of(*ATTEMPTS))
    assert len(bench.judge.requests) == 3


@pytest.mark.parametrize("parameter", ["response_format", "temperature", "max_completion_tokens"])
async def test_t26_d_a_server_that_refuses_a_parameter_is_asked_without(
    bench: JudgeBench, parameter: str
) -> None:
    bench.judge.then(refuses(parameter, HONEST))
    assert rewards(await bench.score(group_of(*ATTEMPTS))) == RIGHT
    assert [parameter in request for request in bench.judge.requests] == [True, False]


async def test_t26_d_a_prompt_beyond_the_models_context_is_shortened(bench: JudgeBench) -> None:
    longest = 12_000

    def small_context(request: dict[str, Any]) -> Any:
        text = request["messages"][-1]["content"]
        if len(text) > longest:
            return fails(400, '{"message": "maximum context length is 4096 tokens"}')(request)
        return HONEST(request)

    bench.judge.then(small_context)
    long = ["word " * 20_000 + ATTEMPTS[0], *ATTEMPTS[1:]]
    scored = await bench.score(group_of(*long))
    assert rewards(scored) == RIGHT
    lengths = [len(request["messages"][-1]["content"]) for request in bench.judge.requests]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] <= longest
    assert scored.judgements[0].opinions[0].bytes_left_out > 80_000


FALLBACK_AFTER: dict[str, Behaviour] = {
    "useless": says("no"),
    "out of range": put(score=9),
    "500": fails(500),
    "wrong key": fails(401),
    "unknown model": fails(404),
    "refused": fails(400, '{"error": "policy"}'),
    "slow": slow(HONEST, NEVER),
    "no completion": lambda request: Answer(body=b"<html>"),
}


@pytest.mark.parametrize("bad", FALLBACK_AFTER.values(), ids=FALLBACK_AFTER)
async def test_t26_d_a_judge_that_fails_is_replaced_by_the_next_fallback(
    judge: FakeJudge, other_judge: FakeJudge, client: httpx.AsyncClient, bad: Behaviour
) -> None:
    judge.then(bad)
    other_judge.then(HONEST)
    attempts = 1 if bad is FALLBACK_AFTER["slow"] else 3
    bench = JudgeBench(judge, client, request_timeout_seconds=60.0, request_attempts=attempts)
    judge.when_never = partial(LoopClock().advance, 60.0)
    spec = spec_pb2.RulerSpec(fallbacks=[model(judge, "m2"), model(other_judge, "spare")])
    scored = await bench.score(group_of(*ATTEMPTS), spec)
    assert rewards(scored) == RIGHT
    opinions = scored.judgements[0].opinions
    assert [opinion.model for opinion in opinions] == ["m", "m2", "spare"]
    assert [bool(opinion.failure) for opinion in opinions] == [True, True, False]
    assert len(other_judge.requests) == 1


async def test_t26_d_a_fallback_is_not_asked_when_the_judge_answers(
    bench: JudgeBench, other_judge: FakeJudge
) -> None:
    bench.judge.then(says("no"), HONEST)
    other_judge.then(HONEST)
    spec = spec_pb2.RulerSpec(fallbacks=[model(other_judge)])
    assert rewards(await bench.score(group_of(*ATTEMPTS), spec)) == RIGHT
    assert other_judge.requests == []


async def test_t26_d_when_the_last_fallback_is_useless_the_group_is_skipped_with_every_reason(
    bench: JudgeBench, other_judge: FakeJudge
) -> None:
    bench.judge.then(fails(503))
    other_judge.then(put(score=15))
    spec = spec_pb2.RulerSpec(fallbacks=[model(other_judge)])
    scored = await bench.score(group_of(*ATTEMPTS), spec)
    assert scored.skip_reason == "judge_failed"
    assert rewards(scored) == [None] * 4
    words = scored.trajectories[0].explanation
    assert "HTTP 503" in words
    assert "is 15; allowed is 0 to 1" in words


async def test_t26_d_a_judge_that_never_ends_is_given_up(
    judge: FakeJudge, other_judge: FakeJudge, client: httpx.AsyncClient
) -> None:
    limits = {"request_attempts": 20, "max_backoff_seconds": 600.0, "question_seconds": 60.0}
    bench = JudgeBench(judge, client, **limits)
    clock = LoopClock()

    def busy(request: dict[str, Any]) -> Answer:
        clock.advance(20.0)
        return fails(429, retry_after="20")(request)

    judge.then(busy)
    other_judge.then(HONEST)
    scored = await bench.score(
        group_of(*ATTEMPTS), spec_pb2.RulerSpec(fallbacks=[model(other_judge)])
    )
    assert rewards(scored) == RIGHT
    assert "no answer within 60 seconds" in scored.judgements[0].opinions[0].failure
