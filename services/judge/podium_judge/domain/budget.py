"""What a job may spend on judges."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from podium.chat import Price
from podium.core import skip_reasons

from podium_judge.domain.opinion import Opinion
from podium_judge.domain.scores import GroupSkippedError, Usage


class JobSpending:
    """What this replica has spent on a job, and what questions in flight may add to it."""

    def __init__(self) -> None:
        self.usage = Usage()
        """What was spent; grows with `Usage.add`."""
        self.in_flight = Usage()
        """What is asked for now, as estimated before."""
        self.changed = asyncio.Condition()


class Spending:
    """What this replica has spent on each job since it started.

    Of the jobs, those whose groups came last are kept.
    """

    def __init__(self, jobs: int = 10_000) -> None:
        self._jobs = jobs
        self._spending: OrderedDict[str, JobSpending] = OrderedDict()

    def of(self, job_id: str) -> JobSpending:
        """What it is so far."""
        found = self._spending.setdefault(job_id, JobSpending())
        self._spending.move_to_end(job_id)
        if len(self._spending) > self._jobs:
            self._spending.popitem(last=False)
        return found


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
                skip_reasons.JUDGE_BUDGET,
                f"the judges of project {self.project!r} have used {self.used_tokens} tokens of"
                f" {self.max_tokens} in {self.period}",
            )


@dataclass(frozen=True)
class Allowance:
    """One job's budget, and what counts against it."""

    budget: Budget
    spending: JobSpending
    """By this replica; what is spent is added here."""
    reported: Usage
    """By all replicas, as far as the caller knows."""
    project: ProjectBudget | None = None
    prices: tuple[Price | None, ...] = (None,)
    """Of the judges that are asked about every group."""

    @asynccontextmanager
    async def group(self, prompt_tokens: int, completion_tokens: int) -> AsyncIterator[None]:
        """Judges are asked about a group inside the block; about so many tokens for each.

        Where what is in flight may use up the budget, it waits until that is known.

        Raises:
            GroupSkippedError: the job's budget is spent, or its project's.
        """
        wanted = Usage()
        for price in self.prices:
            cost = price.of(prompt_tokens, completion_tokens) if price else 0.0
            wanted.add(Usage(0, prompt_tokens, completion_tokens, cost))
        in_flight, changed = self.spending.in_flight, self.spending.changed
        self._check()
        async with changed:
            while self._is_reserved(wanted):
                await changed.wait()
                self._check()
            in_flight.add(wanted)
        try:
            yield
        finally:
            in_flight.subtract(wanted)
            async with changed:
                changed.notify_all()

    @classmethod
    def unbounded(cls) -> Allowance:
        """Of a job without bounds, whose spending nobody else counts."""
        return cls(Budget(), JobSpending(), Usage())

    def count(self, spent: Usage) -> None:
        """Adds what was spent."""
        self.spending.usage.add(spent)

    def count_opinions(self, opinions: Iterable[Opinion], group: Usage) -> None:
        """Adds what they cost, here and to what their group has cost."""
        for opinion in opinions:
            spent = Usage(cached=int(opinion.cached))
            spent.add(opinion.usage)
            group.add(spent)
            self.count(spent)

    def _is_reserved(self, wanted: Usage) -> bool:
        in_flight = self.spending.in_flight
        if in_flight.tokens <= 0:
            # Whoever is alone goes on: a group that was begun is finished.
            return False
        tokens = self._tokens + in_flight.tokens + wanted.tokens
        cost = self._cost + in_flight.cost + wanted.cost
        return 0 < self.budget.tokens < tokens or 0 < self.budget.cost < cost

    @property
    def _tokens(self) -> int:
        return max(self.spending.usage.tokens, self.reported.tokens)

    @property
    def _cost(self) -> float:
        return max(self.spending.usage.cost, self.reported.cost)

    def _check(self) -> None:
        if self.project:
            self.project.check()
        if 0 < self.budget.tokens <= self._tokens:
            raise GroupSkippedError(
                skip_reasons.JUDGE_BUDGET,
                f"the job's judges have used {self._tokens} tokens of {self.budget.tokens}",
            )
        if 0 < self.budget.cost <= self._cost:
            raise GroupSkippedError(
                skip_reasons.JUDGE_BUDGET,
                f"the job's judges have cost {self._cost:g} of {self.budget.cost:g}",
            )
