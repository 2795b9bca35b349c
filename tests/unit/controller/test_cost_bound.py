"""Calls of scorers over HTTP against what a job's judges may cost."""

from __future__ import annotations

import asyncio

import pytest
from podium.core.skip_reasons import JUDGE_BUDGET
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain.budget import bounded
from podium_controller.domain.ports import GroupKey
from podium_controller.pools.projects import ProjectLimits
from podium_controller.training.cost_bound import CostBound, price_of_calls
from podium_controller.training.judging import Judging
from support.fakes.bench import JOB, Bench

BUDGET = spec_pb2.BudgetSpec(max_judge_cost=1.0)


def priced(price: float = 0.4, protocol: int = 0) -> spec_pb2.Scorer:
    http = spec_pb2.HttpScorerSpec(
        base_url="http://scorer",
        call_price=price,
        protocol=protocol,  # type: ignore[arg-type]
    )
    return spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_HTTP, http=http)


class PricedScorer:
    """Knows no bound, as the judge service of a scorer over HTTP; all that ask wait for `go`."""

    def __init__(self) -> None:
        self.asked = 0
        self.at_once = 0
        self.most_at_once = 0

    async def score(self, request: judge_pb.ScoreGroupRequest) -> judge_pb.ScoreGroupResponse:
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        for _ in range(50):
            await asyncio.sleep(0)
        self.at_once -= 1
        usage = judge_pb.JudgeUsage(calls=1, cost=0.4)
        return judge_pb.ScoreGroupResponse(group=request.group, usage=usage)


def judging(scorer: PricedScorer, bench: Bench) -> Judging:
    return Judging(
        scorer,  # type: ignore[arg-type]
        bounded(bench.spec.reward, BUDGET),
        bench.recovery,
        bench.ledger,
        "default",
        ProjectLimits(),
        CostBound(bench.spec.budget),
    )


async def score(job: Judging, step: int, position: int) -> trajectory_pb2.Group:
    group = trajectory_pb2.Group(
        id=f"{step}-{position}", job_id=JOB, trajectories=[trajectory_pb2.Trajectory()]
    )
    return await job.score(GroupKey(JOB, step, position), group)


async def test_groups_at_once_overshoot_a_budget_by_one_and_not_by_all() -> None:
    bench = Bench(budget=BUDGET, reward=spec_pb2.RewardSpec(scorers=[priced()]))
    scorer = PricedScorer()
    job = judging(scorer, bench)
    scored = await asyncio.gather(*(score(job, 1, n) for n in range(8)))
    reasons = sorted(each.skip_reason for each in scored)
    assert reasons == ["", "", "", *[JUDGE_BUDGET] * 5]
    assert (scorer.asked, scorer.most_at_once) == (3, 2)
    told = {each.trajectories[0].explanation for each in scored if each.skip_reason}
    assert told == {"not scored: budget.max_judge_cost is 1 and it has used 1.2"}


async def test_what_was_stored_before_counts_and_without_a_budget_nothing_waits() -> None:
    reward = spec_pb2.RewardSpec(scorers=[priced()])
    free = Bench(reward=reward)
    scorer = PricedScorer()
    job = judging(scorer, free)
    await asyncio.gather(*(score(job, 1, n) for n in range(8)))
    assert (scorer.asked, scorer.most_at_once) == (8, 8)
    # Another controller goes on with the same job, which now has a budget.
    bench = Bench(budget=BUDGET, reward=reward)
    bench.ledger = free.ledger
    after = await score(judging(scorer, bench), 2, 0)
    assert (after.skip_reason, scorer.asked) == (JUDGE_BUDGET, 8)


async def test_a_call_that_raises_gives_its_part_back() -> None:
    bound = CostBound(BUDGET)

    async def nothing() -> judge_pb.JudgeUsage:
        return judge_pb.JudgeUsage()

    with pytest.raises(RuntimeError):
        async with bound.group(0.9, nothing):
            raise RuntimeError
    async with bound.group(0.9, nothing) as spent, bound.group(0.1, nothing) as second:
        assert (spent, second) == ("", "")


def test_calls_are_one_a_side_or_one_a_conversation() -> None:
    talked = trajectory_pb2.Trajectory(histories=[trajectory_pb2.History()] * 2)
    other = trajectory_pb2.Trajectory(histories=[trajectory_pb2.History()], side="black")
    both = trajectory_pb2.Group(trajectories=[talked, other])
    for protocol, calls in (
        (spec_pb2.HTTP_SCORER_PROTOCOL_SCORE, 2),
        (spec_pb2.HTTP_SCORER_PROTOCOL_POOLING, 3),
        (spec_pb2.HTTP_SCORER_PROTOCOL_CLASSIFY, 3),
    ):
        reward = spec_pb2.RewardSpec(scorers=[priced(0.5, protocol)])
        assert price_of_calls(reward, both) == 0.5 * calls
    ruler = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER)
    assert price_of_calls(spec_pb2.RewardSpec(scorers=[ruler]), both) == 0
