"""What a job may use, and what becomes of it when it has."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from podium.core.skip_reasons import JUDGE_BUDGET
from podium.jobs.v1 import job_service_pb2 as pb
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain.budget import bounded, budget_violations, exhausted
from podium_controller.domain.errors import BudgetSpentError
from podium_controller.domain.ports import COLLECTED, GroupKey
from podium_controller.training.collector import Collector
from podium_controller.training.group_sources import RolloutGroups
from podium_controller.training.judging import Judging
from podium_controller.training.mixture import Mixture
from podium_controller.training.scenario_order import ScenarioOrder
from support.fakes.bench import JOB, Bench

RULER = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER, ruler=spec_pb2.RulerSpec())
BUDGET = spec_pb2.BudgetSpec(max_judge_cost=1.0)


@pytest.mark.parametrize(
    ("budget", "used", "named"),
    [
        ({}, {"sampled_tokens": 10**12, "judge_cost": 1e9}, ""),
        ({"max_sampled_tokens": 100}, {"sampled_tokens": 99}, ""),
        ({"max_sampled_tokens": 100}, {"sampled_tokens": 100}, "max_sampled_tokens is 100"),
        ({"max_trainer_hours": 0.5}, {"trainer_seconds": 1800}, "max_trainer_hours is 0.5"),
        ({"max_judge_cost": 2}, {"judge_cost": 2.5}, "max_judge_cost is 2 and it has used 2.5"),
        # Of trainer and pool together.
        (
            {"max_gpu_hours": 2},
            {"trainer_gpu_seconds": 3600, "pool_gpu_seconds": 3600},
            "max_gpu_hours is 2 and it has used 2",
        ),
        ({"max_gpu_hours": 2}, {"trainer_gpu_seconds": 3600, "pool_seconds": 1e6}, ""),
    ],
)
def test_a_budget_is_reached_and_named(
    budget: dict[str, float], used: dict[str, float], named: str
) -> None:
    found = exhausted(spec_pb2.BudgetSpec(**budget), pb.Usage(**used))  # type: ignore[arg-type]
    assert bool(found) == bool(named)
    assert named in found


@pytest.mark.parametrize(("own", "told"), [(0, 1.0), (0.5, 0.5), (3, 1.0)])
def test_judges_are_told_the_lesser_bound(own: float, told: float) -> None:
    reward = spec_pb2.RewardSpec(scorers=[RULER])
    reward.scorers[0].ruler.max_job_cost = own
    assert bounded(reward, BUDGET).scorers[0].ruler.max_job_cost == told
    assert reward.scorers[0].ruler.max_job_cost == own
    assert bounded(reward, spec_pb2.BudgetSpec()) is reward


def test_a_rubrics_judges_are_told_the_bound_too() -> None:
    rubric = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RUBRIC, rubric=spec_pb2.RubricSpec())
    reward = spec_pb2.RewardSpec(scorers=[rubric])
    assert bounded(reward, BUDGET).scorers[0].rubric.max_job_cost == 1.0
    assert budget_violations(spec_pb2.JobSpec(reward=reward), BUDGET, "b") == []
    free = spec_pb2.RewardSpec(scorers=[spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_HTTP)])
    assert len(budget_violations(spec_pb2.JobSpec(reward=free), BUDGET, "b")) == 1
    free.scorers[0].http.call_price = 0
    assert len(budget_violations(spec_pb2.JobSpec(reward=free), BUDGET, "b")) == 1
    free.scorers[0].http.call_price = 0.01
    assert budget_violations(spec_pb2.JobSpec(reward=free), BUDGET, "b") == []


def test_a_cost_of_judges_needs_judges() -> None:
    (found,) = budget_violations(spec_pb2.JobSpec(), BUDGET, "job.spec.budget")
    assert found.field == "job.spec.budget.max_judge_cost"
    reward = spec_pb2.RewardSpec(scorers=[RULER])
    assert budget_violations(spec_pb2.JobSpec(reward=reward), BUDGET, "b") == []
    # Those of its evaluations cost as well.
    evaluated = spec_pb2.JobSpec(evaluation=spec_pb2.EvaluationSpec(reward=reward))
    assert budget_violations(evaluated, BUDGET, "b") == []


def test_a_cost_of_judges_holds_one_call_that_is_priced() -> None:
    http = spec_pb2.HttpScorerSpec(call_price=1.5)
    priced = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_HTTP, http=http)
    reward = spec_pb2.RewardSpec(scorers=[RULER, priced])
    for spec, path in (
        (spec_pb2.JobSpec(reward=reward), "reward"),
        (spec_pb2.JobSpec(evaluation=spec_pb2.EvaluationSpec(reward=reward)), "evaluation.reward"),
    ):
        (found,) = budget_violations(spec, BUDGET, "budget")
        assert found.field == "budget.max_judge_cost"
        words = f"got 1; allowed is at least 1.5, the call_price of {path}.scorers[1].http"
        assert found.description.startswith(words)
        assert budget_violations(spec, spec_pb2.BudgetSpec(max_judge_cost=1.5), "b") == []


class CostlyJudge:
    """Would take 0.6 for a group, and has been granted less where it may not."""

    async def score(self, request: judge_pb.ScoreGroupRequest) -> judge_pb.ScoreGroupResponse:
        group = request.group
        if request.grant.cost < 0.6:
            group.skip_reason = JUDGE_BUDGET
            return judge_pb.ScoreGroupResponse(group=group, wanted=judge_pb.JudgeGrant(cost=0.6))
        return judge_pb.ScoreGroupResponse(group=group, usage=judge_pb.JudgeUsage(cost=0.6))


async def test_groups_that_judges_may_not_score_any_more_wait_to_be_judged() -> None:
    bench = Bench(
        budget=BUDGET,
        reward=spec_pb2.RewardSpec(scorers=[RULER]),
        rollout=spec_pb2.RolloutSpec(group_size=2, groups_per_step=2, max_concurrent_groups=2),
    )
    scenarios = await bench.rollout.scenarios(bench.spec.environment, "train")
    judging = Judging(
        CostlyJudge(),  # type: ignore[arg-type]
        bounded(bench.spec.reward, BUDGET),
        bench.recovery,
        bench.ledger,
        bench.spending,
    )
    # What is left would be enough for a group that took less.
    before = trajectory_pb2.Group(id="before")
    usage = judge_pb.JudgeUsage(cost=0.5)
    await bench.ledger.save_judged(GroupKey(JOB, 1, 9, "before"), before, usage, "2026-11")
    order = ScenarioOrder(scenarios, 7)
    mixture = Mixture([spec_pb2.WeightedEnvironment(weight=1)], 7, 2)
    origin = RolloutGroups(JOB, bench.spec.rollout, [(bench.source, order, order)], mixture)
    collector = Collector(
        JOB,
        bench.spec,
        origin,
        judging,
        bench.ledger,
        bench.reporter,
        lambda step: trace.INVALID_SPAN,
    )
    bench.inference.job, bench.inference.version = JOB, 0
    words = r"^the job's judges have cost 0\.5 of 1 \(budget\.max_judge_cost\).* the next 0\.6$"
    with pytest.raises(BudgetSpentError, match=words):
        await collector.collect(1)
    assert bench.spending.over_budget
    kept = await bench.ledger.stored_groups(JOB, 1)
    assert [(each.status, each.group.skip_reason) for each in kept.values()] == [
        (COLLECTED, ""),
        (COLLECTED, ""),
    ]
