"""What a job may spend on judges."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from podium_judge.scores import GroupSkippedError, SkipReason, Usage


class Spending:
    """What this replica has spent on each job since it started.

    Of the jobs, those whose groups came last are kept.
    """

    def __init__(self, jobs: int = 10_000) -> None:
        self._jobs = jobs
        self._usage: OrderedDict[str, Usage] = OrderedDict()

    def of(self, job_id: str) -> Usage:
        """What it is so far; grows with `Usage.add`."""
        usage = self._usage.setdefault(job_id, Usage())
        self._usage.move_to_end(job_id)
        if len(self._usage) > self._jobs:
            self._usage.popitem(last=False)
        return usage


@dataclass(frozen=True)
class Budget:
    """Bounds on what a job's judges may cost; 0 for none."""

    tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True)
class ProjectBudget:
    """What the judges of all of a project's jobs may use, and have used, in a period."""

    project: str
    max_tokens: int
    used_tokens: int
    period: str

    def check(self) -> None:
        """Raises GroupSkippedError when it is spent."""
        if self.used_tokens >= self.max_tokens:
            raise GroupSkippedError(
                SkipReason.JUDGE_BUDGET,
                f"the judges of project {self.project!r} have used {self.used_tokens} tokens of"
                f" {self.max_tokens} in {self.period}",
            )


@dataclass(frozen=True)
class Allowance:
    """One job's budget, and what counts against it."""

    budget: Budget
    spent: Usage
    """By this replica; what is spent is added here."""
    told: Usage
    """By all replicas, as far as the caller knows."""
    project: ProjectBudget | None = None

    def check(self) -> None:
        """Raises GroupSkippedError when the job's budget is spent, or its project's."""
        if self.project:
            self.project.check()
        tokens = max(self.spent.tokens, self.told.tokens)
        if 0 < self.budget.tokens <= tokens:
            raise GroupSkippedError(
                SkipReason.JUDGE_BUDGET,
                f"the job's judges have used {tokens} tokens of {self.budget.tokens}",
            )
        cost = max(self.spent.cost, self.told.cost)
        if 0 < self.budget.cost <= cost:
            raise GroupSkippedError(
                SkipReason.JUDGE_BUDGET,
                f"the job's judges have cost {cost:g} of {self.budget.cost:g}",
            )
