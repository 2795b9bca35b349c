"""A budget that no question fits is refused before a job is made with it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from podium.core.errors import InvalidArgumentError, Violation
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from support.fake_judge import grades, scores
from support.http_scoring import POOLING, Bench, answers
from support.judging import model, rewards

PRICE = 3e-5 * 1e6
USER = trajectory_pb2.Message(role=trajectory_pb2.ROLE_USER)


@pytest.fixture
def bench(judge: Any, other_judge: Any, client: Any) -> Bench:
    judge.then(scores(lambda text: 0.5))
    pooled = {"data": [{"data": 1.0}], "usage": {"prompt_tokens": 7}}
    other_judge.then(answers(pooled))
    return Bench(judge, other_judge, client)


def judges(bench: Bench, count: int = 1) -> list[spec_pb2.JudgeModel]:
    """Of short answers, each of whose tokens costs PRICE."""
    prices = {"prompt_price": PRICE, "completion_price": PRICE}
    return [model(bench.judge, f"m{n}", max_completion_tokens=16, **prices) for n in range(count)]


def ruler(bench: Bench, **fields: Any) -> spec_pb2.Scorer:
    spec = spec_pb2.RulerSpec(judges=judges(bench, fields.pop("count", 1)), **fields)
    return spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER, ruler=spec)


def rubric(bench: Bench, **fields: Any) -> spec_pb2.Scorer:
    bench.judge.then(grades(lambda name, text: 0.5))
    criteria = [spec_pb2.Criterion(name="right", description="It is right.")]
    spec = spec_pb2.RubricSpec(judges=judges(bench), criteria=criteria, **fields)
    return spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RUBRIC, rubric=spec)


def pooling(bench: Bench, **fields: Any) -> spec_pb2.Scorer:
    return bench.spec(POOLING, **fields)


async def refused(bench: Bench, *scorers: spec_pb2.Scorer) -> list[Violation]:
    request = judge_pb.CheckRewardRequest(reward=spec_pb2.RewardSpec(scorers=scorers))
    context: Any = None
    try:
        await bench.servicer.CheckReward(request, context)
    except InvalidArgumentError as error:
        return error.violations
    return []


async def least_told(bench: Bench, *scorers: spec_pb2.Scorer) -> float:
    (violation,) = await refused(bench, *scorers)
    found = re.match(r"got \S+; allowed is at least ([0-9.e-]+)", violation.description)
    assert found is not None
    return float(found[1])


def silent(job: str) -> trajectory_pb2.Group:
    """One attempt that says nothing, the shortest that there is."""
    attempt = trajectory_pb2.Trajectory(id="t0", histories=[{"messages": [USER]}])
    return trajectory_pb2.Group(id=f"{job}/g", job_id=job, trajectories=[attempt])


@pytest.mark.parametrize(
    ("made", "part", "bound", "fields"),
    [
        (ruler, "ruler", "max_job_tokens", {}),
        (ruler, "ruler", "max_job_tokens", {"count": 3}),
        (ruler, "ruler", "max_job_tokens", {"both_orders": True, "rubric": "Short is good. " * 9}),
        (ruler, "ruler", "max_job_cost", {}),
        (rubric, "rubric", "max_job_tokens", {}),
        (rubric, "rubric", "max_job_cost", {}),
        (pooling, "http", "max_job_tokens", {}),
    ],
)
async def test_the_least_that_is_told_is_what_the_shortest_question_takes(
    bench: Bench, made: Any, part: str, bound: str, fields: dict[str, Any]
) -> None:
    tiny = 1e-9 if bound == "max_job_cost" else 1
    (violation,) = await refused(bench, made(bench, **{bound: tiny}, **fields))
    assert violation.field == f"reward.scorers[0].{part}.{bound}"
    assert violation.description.startswith(f"got {tiny:.12g}; allowed is at least ")
    least = await least_told(bench, made(bench, **{bound: tiny}, **fields))
    least = int(least) if bound == "max_job_tokens" else least
    below = least - 1 if bound == "max_job_tokens" else least * 0.999
    # What is refused would have skipped even that group, and what is allowed scores it.
    for most, job in ((below, "below"), (least, "least")):
        scorer = made(bench, **{bound: most}, **fields)
        assert bool(await refused(bench, scorer)) == (most == below)
        found = (await bench.rewarded(silent(job), scorer)).group
        assert (found.skip_reason == "judge_budget") == (most == below)
        assert (rewards(found) == [None]) == (most == below)


async def test_a_bound_is_the_whole_jobs_whichever_scorer_has_it(bench: Bench) -> None:
    needs = await least_told(bench, ruler(bench, max_job_tokens=1))
    paid = bench.spec(POOLING, max_job_tokens=int(needs) - 1)
    (violation,) = await refused(bench, ruler(bench), paid)
    assert violation.field == "reward.scorers[1].http.max_job_tokens"
    assert await least_told(bench, ruler(bench), paid) == needs
    # A call's price counts against what judges may cost.
    dear = bench.spec(0, call_price=1e6)
    (violation,) = await refused(bench, dear, ruler(bench, max_job_cost=9e5))
    assert violation.field == "reward.scorers[1].ruler.max_job_cost"
    assert "got 900000; allowed is at least 1000000," in violation.description


async def test_without_a_bound_and_of_calls_without_tokens_nothing_is_refused(
    bench: Bench,
) -> None:
    bench.scorer.then(answers({"scores": [1]}))
    assert await refused(bench, ruler(bench), rubric(bench), pooling(bench)) == []
    # What is one's own code reads no tokens that anybody counts.
    assert await refused(bench, bench.spec(0, max_job_tokens=1)) == []


async def test_what_a_judge_leaves_open_is_the_services(bench: Bench) -> None:
    own = spec_pb2.RulerSpec(base_url=bench.judge.base_url, model="m", max_job_tokens=4096)
    scorer = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER, ruler=own)
    assert await least_told(bench, scorer) > 4096 + 256
