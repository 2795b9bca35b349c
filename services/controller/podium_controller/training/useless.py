"""What is done when all groups of a step are of no use."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from podium.core.skip_reasons import (
    ENVIRONMENT_UNAVAILABLE,
    GROUP_REFUSED,
    JUDGE_BUDGET,
    JUDGE_ERROR,
    JUDGE_FAILED,
    JUDGE_MISCONFIGURED,
    TEACHER_ERROR,
)
from podium.types.v1 import trajectory_pb2

from podium_controller.domain import metrics
from podium_controller.domain.budget import BUDGET_EXHAUSTED, JUDGE_COST
from podium_controller.domain.errors import BudgetSpentError, JobFailedError
from podium_controller.domain.ports import COLLECTED, GroupKey, Ledger
from podium_controller.domain.uncollected import was_broken_on
from podium_controller.training.judging import (
    NOT_SCORED,
    TEACHER,
    failure_text,
    scorer,
    unjudgeable,
    unusable,
)
from podium_controller.training.reporter import Reporter

Keyed = tuple[GroupKey, trajectory_pb2.Group]
"""A group, and where it is stored."""

# How often in a row all groups of a step may be of no use.
_ROUNDS = 3
# Before another round, in seconds; twice as long each time.
_FIRST_PAUSE = 1.0
# What asking judge or teacher once more may mend.
_UNJUDGED = (JUDGE_FAILED, JUDGE_ERROR, JUDGE_MISCONFIGURED, TEACHER_ERROR)


class UselessGroups:
    """Decides whether one job goes on after groups of which not one was of use."""

    def __init__(self, job_id: str, ledger: Ledger, reporter: Reporter) -> None:
        self._job_id = job_id
        self._ledger = ledger
        self._reporter = reporter

    async def check_judges(self, step: int, groups: Sequence[Keyed]) -> None:
        """Ends the run where no group has a score and asking again would not help.

        Where judges have cost what the job may spend, the groups are kept, to be judged when it
        may spend more.

        Raises:
            BudgetSpentError: so it is.
            JobFailedError: JUDGE_BUDGET_SPENT, JUDGE_UNAVAILABLE, TEACHER_UNAVAILABLE.
        """
        group = unjudgeable([each for _, each in groups])
        if group is None:
            return
        await self._check_budget(groups)
        reason = unusable(group)
        metrics.count_group(self._job_id, reason, len(groups))
        who = scorer(group)
        done = "taught" if who == TEACHER else "judged"
        raise JobFailedError(
            f"no group of step {step} could be {done}. {who} says: {failure_text(group)}",
            reason="JUDGE_BUDGET_SPENT" if reason == JUDGE_BUDGET else reason.upper(),
        )

    def check_environments(self, step: int, groups: Sequence[Keyed], *, is_lost: bool) -> bool:
        """Whether not one group had an environment, and others may have; `is_lost` says none.

        Raises:
            JobFailedError: ENVIRONMENT_UNAVAILABLE: nor will any.
        """
        if any(unusable(group) != ENVIRONMENT_UNAVAILABLE for _, group in groups):
            return False
        if not is_lost:
            return True
        metrics.count_group(self._job_id, ENVIRONMENT_UNAVAILABLE, len(groups))
        raise JobFailedError(
            f"no group of step {step} could be collected: {failure_text(groups[0][1])}",
            reason=ENVIRONMENT_UNAVAILABLE.upper(),
        )

    async def drop(self, groups: Sequence[Keyed]) -> None:
        """Groups of an environment that is away, in whose place others are drawn."""
        metrics.count_group(self._job_id, ENVIRONMENT_UNAVAILABLE, len(groups))
        for key, _ in groups:
            await self._ledger.drop_group(key)

    async def _check_budget(self, groups: Sequence[Keyed]) -> None:
        texts = (failure_text(each) for _, each in groups if each.skip_reason == JUDGE_BUDGET)
        if not (text := next((words for words in texts if JUDGE_COST in words), "")):
            return
        for key, each in groups:
            if each.skip_reason == JUDGE_BUDGET:
                each.skip_reason = ""
                await self._ledger.save_group(key, COLLECTED, each)
        raise BudgetSpentError(BUDGET_EXHAUSTED, text.removeprefix(NOT_SCORED))

    async def make_room(
        self, step: int, groups: Sequence[Keyed], rounds: int, *, renewable: bool = True
    ) -> list[Keyed]:
        """Makes room for another round, after a pause, or ends the job.

        Args:
            rounds: in a row whose groups were all of no use, with this one.
            renewable: whether a group can be had once more.

        Returns:
            Those that stay, to be judged again. The others are dropped where renewable.

        Raises:
            JobFailedError: ENVIRONMENT_FAILING, ROLLOUT_FAILING, JUDGE_FAILING, TEACHER_FAILING,
                JUDGE_MISCONFIGURED, GROUPS_REFUSED.
        """
        of_judge = [each for each in groups if unusable(each[1]) in _UNJUDGED]
        _, shown = (of_judge or groups)[0]
        text = failure_text(shown)
        who, reason = _at_fault(shown)
        metrics.count_group(self._job_id, unusable(shown), len(groups))
        if rounds == _ROUNDS:
            raise JobFailedError(
                f"all {len(groups)} groups of step {step} failed {rounds} times in a row."
                f" {who} says: {text}",
                reason=reason,
            )
        await self._reporter.warn(
            f"all {len(groups)} groups of step {step} failed; trying again. {who} says: {text}",
            step,
        )
        for key, group in groups:
            if unusable(group) in _UNJUDGED:
                group.skip_reason = ""
                await self._ledger.save_group(key, COLLECTED, group)
            elif renewable:
                await self._ledger.drop_group(key)
        await asyncio.sleep(_FIRST_PAUSE * 2.0 ** (rounds - 1))
        return of_judge


def _at_fault(shown: trajectory_pb2.Group) -> tuple[str, str]:
    """Who made a group of no use, and a job's reason when all groups are."""
    if unusable(shown) in _UNJUDGED:
        who = scorer(shown)
        if unusable(shown) == JUDGE_MISCONFIGURED:
            return who, JUDGE_MISCONFIGURED.upper()
        return who, "TEACHER_FAILING" if who == TEACHER else "JUDGE_FAILING"
    if unusable(shown) == GROUP_REFUSED:
        return "The rollout service", "GROUPS_REFUSED"
    if was_broken_on(shown):
        return "The rollout service", "ROLLOUT_FAILING"
    return "The environment", "ENVIRONMENT_FAILING"
