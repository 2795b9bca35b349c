"""A budget is hard: whatever is in flight at once, no more is spent than it says."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import grpc
import httpx
import pytest
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.judge.v1 import judge_service_pb2_grpc as judge_grpc
from podium.kit.rpc import details
from podium.types.v1 import spec_pb2, trajectory_pb2
from support.fake_judge import (
    NEVER,
    Behaviour,
    FakeJudge,
    costing,
    fails,
    grades,
    says,
    scores,
    slow,
)
from support.judging import JudgeBench, group_of, judge_service, model, rewards
from support.waiting import eventually

READS, WRITES = 1400, 16
"""Tokens of the scripted model's every answer: less than its prompt has bytes."""
EACH = READS + WRITES
MOST = 2200
"""More than one question of these tests can take: its bytes, a template's and the answer's."""
PRICE = 1e-3
"""Of one token."""
SPLIT = scores(lambda text: 0.5)


def counted(behaviour: Behaviour) -> Behaviour:
    """The same answer, which took EACH tokens."""
    return costing(READS, WRITES, behaviour)


@pytest.fixture
def bench(judge: FakeJudge, client: httpx.AsyncClient) -> JudgeBench:
    judge.then(counted(SPLIT))
    return JudgeBench(judge, client)


def small(judge: FakeJudge, name: str = "m") -> spec_pb2.JudgeModel:
    """A judge of short answers, each of whose tokens costs PRICE."""
    priced = PRICE * 1e6
    return model(
        judge,
        name,
        prompt_price=priced,
        completion_price=priced,
        max_completion_tokens=WRITES,
    )


def pair(number: int) -> trajectory_pb2.Group:
    return group_of(f"word {number}", f"word {number} more", group=f"job/s1/g{number}")


async def judged_at_once(
    bench: JudgeBench, spec: spec_pb2.RulerSpec, groups: int = 40
) -> tuple[int, set[str]]:
    """How many of so many groups were judged, and what the others say."""
    found = await asyncio.gather(*(bench.score(pair(n), spec) for n in range(groups)))
    skipped = [group for group in found if rewards(group) == [None, None]]
    assert {group.skip_reason for group in skipped} <= {"judge_budget"}
    return groups - len(skipped), {each.trajectories[0].explanation for each in skipped}


@pytest.mark.parametrize("bound", ["max_job_tokens", "max_job_cost"])
@pytest.mark.parametrize("extra", [{}, {"both_orders": True}])
async def test_forty_groups_at_once_never_spend_more_than_their_budget(
    bench: JudgeBench, bound: str, extra: dict[str, Any]
) -> None:
    most = 9 * EACH + MOST
    limit = most if bound == "max_job_tokens" else most * PRICE
    spec = spec_pb2.RulerSpec(judges=[small(bench.judge)], **{bound: limit}, **extra)
    judged, words = await judged_at_once(bench, spec)
    calls = len(bench.judge.requests)
    assert calls == judged * len({False, *extra.values()})
    assert most - 2 * MOST < calls * EACH <= most
    (name,) = {text.partition(";")[0].rpartition("(")[2] for text in words}
    assert name == f"{bound})"
    assert all(re.search(r"questions in flight may take \S+ and the next \S+$", w) for w in words)


async def test_the_calls_of_a_rubric_count_one_by_one(bench: JudgeBench) -> None:
    bench.judge.then(counted(grades(lambda name, text: 0.5)))
    rubric = spec_pb2.RubricSpec(
        judges=[small(bench.judge)],
        criteria=[spec_pb2.Criterion(name="right", description="It is right.")],
        max_job_tokens=7 * EACH + 2 * MOST,
    )
    scorer = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RUBRIC, rubric=rubric)
    found = await asyncio.gather(*(bench.rewarded(pair(n), scorer) for n in range(20)))
    assert 0 < len(bench.judge.requests) * EACH <= 7 * EACH + 2 * MOST
    # A group that was begun is finished.
    assert {tuple(rewards(each.group)) for each in found} == {(0.5, 0.5), (None, None)}


async def test_what_fits_the_budget_is_asked_at_once(bench: JudgeBench) -> None:
    spec = spec_pb2.RulerSpec(judges=[small(bench.judge)], max_job_tokens=40 * MOST)
    judge, everyone = bench.judge, asyncio.Event()
    loop = asyncio.get_running_loop()
    judge.when_never = lambda: loop.call_soon_threadsafe(everyone.set)
    judge.then(*[slow(counted(SPLIT), NEVER)] * 40)
    asked = [asyncio.create_task(bench.score(pair(n), spec)) for n in range(40)]
    # As many as the service asks at once; nobody has had an answer.
    await eventually(lambda: len(judge.requests) == 32)
    for each in asked:
        each.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


@pytest.mark.parametrize("first", [slow(SPLIT, NEVER), fails(500), fails(400)])
async def test_a_question_without_an_answer_leaves_its_share(
    bench: JudgeBench, first: Behaviour
) -> None:
    bench.judge.then(first)
    spec = spec_pb2.RulerSpec(judges=[small(bench.judge)], max_job_tokens=MOST)
    giving_up = asyncio.create_task(bench.score(pair(1), spec))
    await eventually(lambda: bool(bench.judge.requests))
    giving_up.cancel()
    await asyncio.gather(giving_up, return_exceptions=True)
    bench.judge.then(counted(SPLIT))
    assert rewards(await bench.score(pair(2), spec)) == [0.5, 0.5]


async def test_an_answer_is_not_repaired_that_the_budget_does_not_hold(bench: JudgeBench) -> None:
    bench.judge.then(counted(says("no")))
    spec = spec_pb2.RulerSpec(judges=[small(bench.judge)], max_job_tokens=MOST)
    scored = await bench.score(pair(1), spec)
    assert (scored.skip_reason, len(bench.judge.requests)) == ("judge_budget", 1)
    words = scored.trajectories[0].explanation
    assert words.startswith(f"not scored: the job's judges have used {EACH} tokens of {MOST}")
    assert scored.judgements[0].opinions[0].prompt_tokens == READS
    spec.max_job_tokens = 2 * MOST + EACH
    scored = await bench.score(pair(1), spec)
    assert (scored.skip_reason, len(bench.judge.requests)) == ("judge_failed", 3)


async def test_repairs_at_once_wait_for_answers_and_not_for_each_other(bench: JudgeBench) -> None:
    bench.judge.then(counted(says("no")))
    # Room for the first questions of both, and for the repair of one.
    limit = 2 * EACH + MOST
    spec = spec_pb2.RulerSpec(judges=[small(bench.judge)], max_job_tokens=limit)
    found = await asyncio.gather(*(bench.score(pair(n), spec) for n in range(2)))
    assert sorted(each.skip_reason for each in found) == ["judge_budget", "judge_failed"]
    assert len(bench.judge.requests) == 3


async def test_of_a_panel_those_judges_count_that_the_budget_held(
    bench: JudgeBench, other_judge: FakeJudge
) -> None:
    bench.judge.then(counted(SPLIT))
    other_judge.then(counted(says("no")))
    judges = [small(bench.judge), small(other_judge)]
    spec = spec_pb2.RulerSpec(judges=judges, quorum=1, max_job_tokens=2 * MOST)
    scored = await bench.score(pair(1), spec)
    assert rewards(scored) == [0.5, 0.5]
    assert len(other_judge.requests) == 1
    assert "the job's judges have used" in scored.judgements[0].opinions[1].failure


async def test_what_is_known_already_costs_nothing_and_is_told(bench: JudgeBench) -> None:
    spec = spec_pb2.RulerSpec(judges=[small(bench.judge)], max_job_tokens=MOST)
    assert rewards(await bench.score(pair(1), spec)) == [0.5, 0.5]
    assert (await bench.score(pair(2), spec)).skip_reason == "judge_budget"
    assert rewards(await bench.score(pair(1), spec)) == [0.5, 0.5]
    assert len(bench.judge.requests) == 1


async def test_a_call_spends_no_more_than_its_grant_and_says_what_it_wants(
    bench: JudgeBench,
) -> None:
    spec = spec_pb2.RulerSpec(judges=[small(bench.judge)])
    scorer = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER, ruler=spec)
    request = judge_pb.ScoreGroupRequest(
        group=pair(1),
        reward=spec_pb2.RewardSpec(scorers=[scorer, scorer]),
        grant=judge_pb.JudgeGrant(tokens=EACH, cost=1e9),
    )
    context: Any = None
    answer = await bench.servicer.ScoreGroup(request, context)
    assert (answer.group.skip_reason, bench.judge.requests) == ("judge_budget", [])
    assert EACH < answer.wanted.tokens <= MOST
    assert answer.wanted.cost == pytest.approx(answer.wanted.tokens * PRICE)
    # The same words are a question less: the second scorer's answer is known.
    request.grant.tokens = answer.wanted.tokens
    answer = await bench.servicer.ScoreGroup(request, context)
    assert rewards(answer.group) == [1.0, 1.0]
    assert (answer.HasField("wanted"), answer.usage.prompt_tokens) == (False, READS)
    # A repair wants more than was granted, and says how much in all.
    bench.judge.then(counted(says("no")))
    request.group.CopyFrom(pair(2))
    answer = await bench.servicer.ScoreGroup(request, context)
    assert answer.group.skip_reason == "judge_budget"
    assert EACH + MOST / 2 < answer.wanted.tokens <= EACH + MOST
    assert answer.usage.prompt_tokens == READS


async def test_a_call_that_fails_says_what_its_judges_had_used(
    bench: JudgeBench, other_judge: FakeJudge
) -> None:
    other_judge.then(fails(500))
    judges = [small(bench.judge), small(other_judge)]
    scorer = spec_pb2.Scorer(
        kind=spec_pb2.SCORER_KIND_RULER, ruler=spec_pb2.RulerSpec(judges=judges)
    )
    request = judge_pb.ScoreGroupRequest(
        group=pair(1), reward=spec_pb2.RewardSpec(scorers=[scorer])
    )
    async with (
        judge_service(bench.judge, request_attempts=1) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        stub: Any = judge_grpc.JudgeServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ScoreGroup(request)
    error = details.decode(caught.value)
    assert error is not None
    used = {name: error.metadata.get(name) for name in ("prompt_tokens", "completion_tokens")}
    assert used == {"prompt_tokens": str(READS), "completion_tokens": str(WRITES)}
    assert float(error.metadata["cost"]) == pytest.approx(EACH * PRICE)


async def test_over_grpc_a_budget_is_as_hard(bench: JudgeBench) -> None:
    limit = 5 * EACH + MOST
    scorer = spec_pb2.Scorer(
        kind=spec_pb2.SCORER_KIND_RULER,
        ruler=spec_pb2.RulerSpec(judges=[small(bench.judge)], max_job_tokens=limit),
    )
    reward = spec_pb2.RewardSpec(scorers=[scorer])
    async with (
        judge_service(bench.judge) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        stub: Any = judge_grpc.JudgeServiceStub(channel)
        asked = [
            stub.ScoreGroup(judge_pb.ScoreGroupRequest(group=pair(n), reward=reward))
            for n in range(20)
        ]
        answers = await asyncio.gather(*asked)
    spent = sum(each.usage.prompt_tokens + each.usage.completion_tokens for each in answers)
    assert limit - MOST <= spent <= limit
    assert spent == len(bench.judge.requests) * EACH
