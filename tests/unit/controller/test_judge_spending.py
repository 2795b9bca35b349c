"""Calls of judges divide what budgets leave: they never spend more, at however many replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest
from podium.core.errors import UnavailableError
from podium.core.skip_reasons import JUDGE_BUDGET, NO_JUDGE_ANSWERS
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain.budget import bounded
from podium_controller.domain.ports import GroupKey
from podium_controller.domain.timestamps import month
from podium_controller.pools.projects import ProjectLimits
from podium_controller.training.judge_spending import JudgeSpending, ProjectAccounts
from podium_controller.training.judging import Judging
from podium_judge.servicer import JudgeServicer
from podium_judge.settings import Settings
from support.fake_judge import FakeJudge, costing, fake_judge, scores
from support.fakes.bench import JOB, Bench
from support.judging import group_of, rewards

BUDGET = spec_pb2.BudgetSpec(max_judge_cost=10.0)
RULER = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER)
REWARD = spec_pb2.RewardSpec(scorers=[RULER])
MOST, TOOK = 1.0, 0.3
"""What a group can cost, and does."""


def refused(
    request: judge_pb.ScoreGroupRequest, wanted: judge_pb.JudgeGrant
) -> judge_pb.ScoreGroupResponse:
    answer = judge_pb.ScoreGroupResponse(group=request.group, wanted=wanted)
    answer.group.skip_reason = JUDGE_BUDGET
    return answer


class Replicas:
    """Judge services that know of no call but the one they answer; they keep to its grant."""

    def __init__(self) -> None:
        self.asked = 0
        self.at_once = 0
        self.most_at_once = 0
        self.spent = 0.0
        self.fails: Callable[[], None] = lambda: None
        """Called once a group has cost something."""

    async def score(self, request: judge_pb.ScoreGroupRequest) -> judge_pb.ScoreGroupResponse:
        grant = request.grant
        if request.HasField("grant") and (grant.cost if grant.HasField("cost") else MOST) < MOST:
            return refused(request, judge_pb.JudgeGrant(cost=MOST))
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        for _ in range(50):
            await asyncio.sleep(0)
        self.at_once -= 1
        self.spent += TOOK
        self.fails()
        usage = judge_pb.JudgeUsage(calls=1, prompt_tokens=30, cost=TOOK)
        return judge_pb.ScoreGroupResponse(group=request.group, usage=usage)


def judging(replicas: object, bench: Bench, spending: JudgeSpending | None = None) -> Judging:
    return Judging(
        replicas,  # type: ignore[arg-type]
        bounded(bench.spec.reward, bench.spec.budget),
        bench.recovery,
        bench.ledger,
        spending or bench.spending,
    )


async def score(job: Judging, position: int) -> trajectory_pb2.Group:
    group = trajectory_pb2.Group(
        id=f"1-{position}", job_id=JOB, trajectories=[trajectory_pb2.Trajectory()]
    )
    return await job.score(GroupKey(JOB, 1, position), group)


async def test_forty_groups_at_once_never_cost_more_than_the_budget() -> None:
    bench, replicas = Bench(budget=BUDGET, reward=REWARD), Replicas()
    job = judging(replicas, bench)
    scored = await asyncio.gather(*(score(job, n) for n in range(40)))
    skipped = [each for each in scored if each.skip_reason]
    assert {each.skip_reason for each in skipped} == {JUDGE_BUDGET}
    # As long as another can be paid for it is asked, and several at once where they can.
    assert 10 - MOST < replicas.spent <= 10
    assert replicas.asked == 40 - len(skipped)
    assert replicas.most_at_once > 2
    told = {each.trajectories[0].explanation for each in skipped}
    assert all("have cost 9.3 of 10 (budget.max_judge_cost)" in words for words in told)
    assert bench.spending.over_budget in "".join(told)
    stored = await bench.ledger.judge_usage(JOB)
    assert stored.cost == pytest.approx(replicas.spent)


async def test_without_a_budget_nothing_waits_and_nothing_is_granted() -> None:
    bench, replicas = Bench(reward=REWARD), Replicas()
    job = judging(replicas, bench)
    await asyncio.gather(*(score(job, n) for n in range(40)))
    assert (replicas.asked, replicas.most_at_once) == (40, 40)


async def test_what_is_ample_is_asked_at_once_and_sent_once() -> None:
    bench, replicas = Bench(budget=BUDGET, reward=REWARD), Replicas()
    bench.spec.budget.max_judge_cost = 200 * MOST
    job = judging(replicas, bench)
    await asyncio.gather(*(score(job, n) for n in range(40)))
    assert (replicas.asked, replicas.most_at_once) == (40, 40)


async def test_what_was_stored_before_counts() -> None:
    bench, replicas = Bench(budget=BUDGET, reward=REWARD), Replicas()
    usage = judge_pb.JudgeUsage(cost=9.2)
    group = trajectory_pb2.Group(id="before")
    await bench.ledger.save_judged(GroupKey(JOB, 1, 99), group, usage, month())
    # Another controller goes on with the job.
    assert (await score(judging(replicas, bench), 0)).skip_reason == JUDGE_BUDGET
    assert replicas.asked == 0


@pytest.mark.parametrize("name", ["max_job_tokens", "max_job_cost"])
async def test_a_scorers_own_bounds_are_as_hard(name: str) -> None:
    ruler = spec_pb2.RulerSpec()
    setattr(ruler, name, 300 if name == "max_job_tokens" else 3.1)
    reward = spec_pb2.RewardSpec(
        scorers=[spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER, ruler=ruler)]
    )
    bench = Bench(reward=reward)
    tokens, money = Tokens(), Replicas()
    job = judging(tokens if name == "max_job_tokens" else money, bench)
    scored = await asyncio.gather(*(score(job, n) for n in range(40)))
    assert 200 < tokens.used <= 300 or 3.1 - MOST < money.spent <= 3.1
    words = next(each.trajectories[0].explanation for each in scored if each.skip_reason)
    assert f"({name})" in words
    assert not bench.spending.over_budget


async def test_jobs_of_a_project_divide_what_it_may_use_in_a_month() -> None:
    limits, accounts = ProjectLimits(maxJudgeTokens=300), ProjectAccounts()
    one, other = Bench(reward=REWARD), Bench(reward=REWARD)
    other.ledger = one.ledger
    replicas = Tokens()
    jobs = [
        judging(
            replicas,
            bench,
            JudgeSpending(JOB, bench.spec.budget, bench.ledger, "lab", limits, accounts),
        )
        for bench in (one, other)
    ]
    scored = await asyncio.gather(*(score(job, n) for n in range(20) for job in jobs))
    skipped = [each for each in scored if each.skip_reason]
    assert 300 - 100 < replicas.used <= 300
    assert "the judges of project 'lab' have used" in skipped[0].trajectories[0].explanation
    assert f"of 300 in {month()}" in skipped[0].trajectories[0].explanation


class Tokens:
    """As `Replicas`, whose groups can take 100 tokens and take 30."""

    used = 0

    async def score(self, request: judge_pb.ScoreGroupRequest) -> judge_pb.ScoreGroupResponse:
        if request.grant.tokens < 100:
            return refused(request, judge_pb.JudgeGrant(tokens=100))
        await asyncio.sleep(0)
        self.used += 30
        usage = judge_pb.JudgeUsage(prompt_tokens=30)
        return judge_pb.ScoreGroupResponse(group=request.group, usage=usage)


async def test_a_call_that_is_lost_gives_its_grant_back_and_what_it_used_counts() -> None:
    bench, replicas = Bench(budget=BUDGET, reward=REWARD), Replicas()
    job = judging(replicas, bench)
    said = {"calls": "1", "prompt_tokens": "30", "cost": str(TOOK), "cached": "no number"}
    errors = [
        # A replica dies; one that answers says what it had used.
        UnavailableError("gone"),
        UnavailableError("away", reason=NO_JUDGE_ANSWERS, metadata=said),
    ]

    def fail() -> None:
        if errors:
            raise errors.pop()

    replicas.fails = fail
    assert not (await score(job, 0)).skip_reason
    stored = await bench.ledger.judge_usage(JOB)
    assert (stored.calls, stored.prompt_tokens, stored.cost) == (2, 60, pytest.approx(2 * TOOK))
    # All of the rest can be had: nothing is held for what is gone.
    replicas.fails = lambda: None
    scored = await asyncio.gather(*(score(job, n) for n in range(1, 40)))
    counted = replicas.spent - TOOK
    assert 10 - MOST < counted <= 10
    assert any(each.skip_reason for each in scored)


async def test_a_cancelled_call_gives_its_grant_back() -> None:
    bench, replicas = Bench(budget=BUDGET, reward=REWARD), Replicas()
    job = judging(replicas, bench)
    asked = [asyncio.create_task(score(job, n)) for n in range(40)]
    while not replicas.at_once:
        await asyncio.sleep(0)
    for each in asked:
        each.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    replicas.at_once = 0
    assert not (await score(job, 0)).skip_reason


async def test_two_real_replicas_keep_to_one_budget() -> None:
    ruler = spec_pb2.RulerSpec(
        judges=[spec_pb2.JudgeModel(model="m", prompt_price=1000, completion_price=1000)]
    )
    reward = spec_pb2.RewardSpec(
        scorers=[spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER, ruler=ruler)]
    )
    # A question can take 2 of these, and takes 1.1.
    budget = spec_pb2.BudgetSpec(max_judge_cost=9.0)
    with fake_judge() as model:
        model.then(costing(1084, 16, scores(lambda text: 0.5)))
        async with httpx.AsyncClient(timeout=None, verify=False) as client:
            bench = Bench(budget=budget, reward=reward)
            job = judging(Alternating(model, client), bench)
            groups = [group_of(f"a {n}", f"b {n}", group=f"{JOB}/s1/g{n}") for n in range(20)]
            scored = await asyncio.gather(
                *(job.score(GroupKey(JOB, 1, n), group) for n, group in enumerate(groups))
            )
    judged = [each for each in scored if rewards(each) == [0.5, 0.5]]
    assert {each.skip_reason for each in scored if each not in judged} == {JUDGE_BUDGET}
    assert len(model.requests) == len(judged)
    assert 9.0 - 2.2 < len(judged) * 1.1 <= 9.0


class Alternating:
    """Two judge services, asked in turns."""

    def __init__(self, model: FakeJudge, client: httpx.AsyncClient) -> None:
        settings = Settings(base_url=model.base_url, model="m", max_completion_tokens=16)
        self._servicers = [JudgeServicer(settings, client) for _ in range(2)]

    async def score(self, request: judge_pb.ScoreGroupRequest) -> judge_pb.ScoreGroupResponse:
        self._servicers.reverse()
        return await self._servicers[0].ScoreGroup(request, None)  # type: ignore[arg-type]
