"""Divides what a job's judges may still spend among its calls, so that they never spend more.

Replicas of the judge service do not know of each other: each call is granted a part of what
is left, and spends no more than that.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from podium.core.contract.judging import judged_spec
from podium.core.errors import PodiumError
from podium.core.spending import NOTHING, Account, Amount, SpendingBound
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.types.v1 import spec_pb2

from podium_controller.domain.budget import JUDGE_COST
from podium_controller.domain.ports import Ledger
from podium_controller.domain.timestamps import month
from podium_controller.pools.projects import ProjectLimits

# What a call is granted at first, of what is left: a group seldom takes as much. One that wants
# more says so before it has asked anybody.
_SHARE = 1 / 64
# Where calls in flight hold so much of what is left, a call waits for theirs to end.
_MOSTLY_HELD = 15 / 16
# More than a group's first questions, for answers that must be repaired.
_ROOM = 2


class ProjectAccounts:
    """What the judges of each project's jobs have used in this month, whoever runs them here."""

    def __init__(self) -> None:
        self._accounts: dict[str, tuple[str, Account]] = {}

    def of(self, project: str, when: str) -> Account:
        """The one of a project and a month; of the month before none is kept."""
        found, account = self._accounts.get(project, ("", Account()))
        if found != when:
            account = Account()
            self._accounts[project] = (when, account)
        return account


class JudgeSpending:
    """What one job's judges have spent, whatever it is that they judge."""

    def __init__(
        self,
        job_id: str,
        budget: spec_pb2.BudgetSpec,
        ledger: Ledger,
        project: str,
        limits: ProjectLimits,
        projects: ProjectAccounts | None = None,
    ) -> None:
        """`limits` are those of the job's project; `projects` are all jobs'."""
        self._job_id = job_id
        self._budget = budget
        self._ledger = ledger
        self._project = project
        self._limits = limits
        self._projects = projects or ProjectAccounts()
        self._account = Account()
        self.over_budget = ""
        """Why a group was not judged for the job's own `max_judge_cost`; empty so far."""

    async def _bounds(self, reward: spec_pb2.RewardSpec) -> list[SpendingBound]:
        """What bounds a call, with what is stored of what was spent."""
        own, allowed = list(self._own(reward)), self._limits.max_judge_tokens
        found = [
            SpendingBound("the job's judges", f"({name})", self._account, most, is_money)
            for name, most, is_money in own
        ]
        if own:
            used = await self._ledger.judge_usage(self._job_id)
            self._account.spent = self._account.spent.highest(_amount(used))
        if allowed is not None:
            when = month()
            account = self._projects.of(self._project, when)
            tokens = await self._ledger.project_judge_tokens(self._project, when)
            account.spent = account.spent.highest(Amount(tokens))
            whose = f"the judges of project {self._project!r}"
            found.append(SpendingBound(whose, f"in {when}", account, allowed))
        return found

    def _own(self, reward: spec_pb2.RewardSpec) -> Iterator[tuple[str, float, bool]]:
        """Each bound of the job: its name, how much, and whether that is money."""
        if self._budget.HasField("max_judge_cost"):
            yield JUDGE_COST, self._budget.max_judge_cost, True
        for scorer in reward.scorers:
            judged = judged_spec(scorer)
            if tokens := (judged or scorer.http).max_job_tokens:
                yield "max_job_tokens", tokens, False
            if judged is not None and judged.max_job_cost:
                yield "max_job_cost", judged.max_job_cost, True

    @asynccontextmanager
    async def call(
        self, reward: spec_pb2.RewardSpec, least: Amount = NOTHING
    ) -> AsyncIterator[JudgeCall]:
        """One call is made inside the block, with the grant of what it is given, if it may be.

        Where calls in flight hold what it needs, it waits until these have ended. However the
        block ends, what it did not use is free again.

        Args:
            least: what it wants to be granted at least; nothing for as much as is usual.
        """
        while True:
            bounds = await self._bounds(reward)
            full = next((bound for bound in bounds if not _has_room(bound, least)), None)
            if full is None:
                break
            if not full.account.reserved or not _may_have_room(full, least):
                if JUDGE_COST in full.name:
                    self.over_budget = full.refusal(least)
                yield JudgeCall(refusal=full.refusal(least))
                return
            await full.account.wait()
        granted = _offered(bounds, least)
        accounts = {id(each.account): each.account for each in bounds}
        accounts[id(self._account)] = self._account
        made = JudgeCall(granted if bounds else None)
        held = Amount(granted.tokens, granted.cost)
        for account in accounts.values():
            account.reserved[made] = held
        try:
            yield made
        finally:
            for account in accounts.values():
                account.give_back(made, _amount(made.used))


class JudgeCall:
    """One call: what it may spend, or why it may not be made."""

    def __init__(self, grant: judge_pb.JudgeGrant | None = None, refusal: str = "") -> None:
        self.grant = grant
        """None for no bound."""
        self.refusal = refusal
        """For people; empty where it may be made."""
        self.used = judge_pb.JudgeUsage()
        """What it took, as far as its answer or its error says."""

    def wanted(self, answer: judge_pb.ScoreGroupResponse) -> Amount:
        """What a call in its place must be granted to go on; nothing where this one did."""
        if self.grant is None or not answer.HasField("wanted"):
            return NOTHING
        wanted, had = answer.wanted, self.grant
        more = (had.HasField("tokens") and wanted.tokens > had.tokens) or (
            had.HasField("cost") and wanted.cost > had.cost
        )
        return Amount(wanted.tokens, wanted.cost) if more else NOTHING


def _offered(bounds: list[SpendingBound], least: Amount) -> judge_pb.JudgeGrant:
    offered = judge_pb.JudgeGrant()
    for bound in bounds:
        size = max(_ROOM * bound.part(least), (bound.most - bound.spent) * _SHARE)
        size = min(size, bound.left)
        if bound.is_money:
            offered.cost = min(size, offered.cost) if offered.HasField("cost") else size
        else:
            tokens = int(size)
            offered.tokens = min(tokens, offered.tokens) if offered.HasField("tokens") else tokens
    return offered


def _has_room(bound: SpendingBound, least: Amount) -> bool:
    left = bound.most - bound.spent
    if left <= 0 or not bound.has_room(least):
        return False
    return bool(bound.part(least)) or bound.reserved <= left * _MOSTLY_HELD


def _may_have_room(bound: SpendingBound, least: Amount) -> bool:
    return bound.spent < bound.most and bound.may_have_room(least)


def add_usage(total: judge_pb.JudgeUsage, more: judge_pb.JudgeUsage) -> None:
    """Adds up what judges have used."""
    for field, amount in more.ListFields():
        setattr(total, field.name, getattr(total, field.name) + amount)


def usage_until(error: PodiumError) -> judge_pb.JudgeUsage:
    """What judges had used when a call of them failed, as its error says."""
    used = judge_pb.JudgeUsage()
    for field in judge_pb.JudgeUsage.DESCRIPTOR.fields:
        kind = type(getattr(used, field.name))
        with contextlib.suppress(ValueError, OverflowError):
            setattr(used, field.name, max(0, kind(error.metadata.get(field.name, 0))))
    return used


def _amount(used: judge_pb.JudgeUsage) -> Amount:
    return Amount(used.prompt_tokens + used.completion_tokens, used.cost)
