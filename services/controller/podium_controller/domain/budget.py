"""Whether a job has used what it may."""

from __future__ import annotations

from dataclasses import dataclass, field

from podium.core.contract.judging import PART_FIELDS, judged_spec
from podium.core.errors import Violation
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2

BUDGET_EXHAUSTED = "BUDGET_EXHAUSTED"
"""The reason for which a job rests that has used what it may."""
PROJECT_BUDGET_EXHAUSTED = "PROJECT_BUDGET_EXHAUSTED"
"""The reason for which a job rests, or is queued, whose project has used a month's."""
PROJECT_TOTAL_EXHAUSTED = "PROJECT_TOTAL_BUDGET_EXHAUSTED"
"""The same of what the project may use in all, which no month gives back."""

JUDGE_COST = "budget.max_judge_cost"
"""A job's own bound on what its judges cost, as refusals name it."""

_HOUR = 3600


@dataclass(frozen=True)
class ProjectUse:
    """What a project's jobs have used."""

    month: pb.Usage = field(default_factory=pb.Usage)
    """In this calendar month, UTC."""
    total: pb.Usage = field(default_factory=pb.Usage)
    """Of all time; not looked at where no bound is."""


def gpu_hours(used: pb.Usage) -> float:
    """Of trainers and of shares of pools."""
    return (used.trainer_gpu_seconds + used.pool_gpu_seconds) / _HOUR


def exhausted(budget: spec_pb2.BudgetSpec, used: pb.Usage) -> str:
    """Which bounds are reached, for people; empty for none."""
    amounts = {
        "max_gpu_hours": gpu_hours(used),
        "max_judge_cost": used.judge_cost,
        "max_sampled_tokens": used.sampled_tokens,
        "max_trainer_hours": used.trainer_seconds / _HOUR,
    }
    reached = [
        f"budget.{name} is {getattr(budget, name):.12g} and it has used {amount:.12g}"
        for name, amount in amounts.items()
        if budget.HasField(name) and amount >= getattr(budget, name)  # type: ignore[arg-type]
    ]
    return "; ".join(reached)


def costs(scorer: spec_pb2.Scorer) -> bool:
    """Whether what a scorer does may cost something that is counted."""
    if scorer.kind == spec_pb2.SCORER_KIND_HTTP:
        return scorer.http.call_price > 0
    return judged_spec(scorer) is not None


def bounded(reward: spec_pb2.RewardSpec, budget: spec_pb2.BudgetSpec) -> spec_pb2.RewardSpec:
    """The reward as the judge service is told it, which needs prices for what is bounded."""
    if not budget.HasField("max_judge_cost"):
        return reward
    told = spec_pb2.RewardSpec()
    told.CopyFrom(reward)
    for scorer in told.scorers:
        if (judged := judged_spec(scorer)) is not None:
            own = judged.max_job_cost or budget.max_judge_cost
            judged.max_job_cost = min(own, budget.max_judge_cost)
    return told


def added_bounds(reward: spec_pb2.RewardSpec, asked: spec_pb2.RewardSpec) -> set[str]:
    """Where the bounds stand that `bounded` put into `asked`, in place of the reward's own."""
    return {
        f"reward.scorers[{index}].{PART_FIELDS[scorer.kind]}.max_job_cost"
        for index, (own, scorer) in enumerate(zip(reward.scorers, asked.scorers, strict=True))
        if judged_spec(own) != judged_spec(scorer)
    }


def budget_violations(
    spec: spec_pb2.JobSpec, budget: spec_pb2.BudgetSpec, field: str
) -> list[Violation]:
    """What is wrong with a budget beyond its fields' own rules; `field` is where it stands."""
    if not budget.HasField("max_judge_cost"):
        return []
    scorers = [
        (scorer, f"{path}.scorers[{index}]")
        for reward, path in ((spec.reward, "reward"), (spec.evaluation.reward, "evaluation.reward"))
        for index, scorer in enumerate(reward.scorers)
    ]
    if any(costs(scorer) for scorer, _ in scorers):
        return [
            Violation(
                f"{field}.max_judge_cost",
                f"got {budget.max_judge_cost:.12g}; allowed is at least"
                f" {scorer.http.call_price:.12g}, the call_price of {path}.http; nothing is asked"
                " that could take more than is left",
            )
            for scorer, path in scorers
            if scorer.http.call_price > budget.max_judge_cost
        ]
    text = (
        f"got {budget.max_judge_cost:g}; allowed with a RULER or rubric scorer, or one over HTTP"
        " with a call_price, which alone cost"
    )
    return [Violation(f"{field}.max_judge_cost", text)]
