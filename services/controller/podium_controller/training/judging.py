"""Scores groups, and says why one is of no use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from podium.core.contract.judging import asks_others
from podium.core.errors import DeadlineExceededError, PodiumError, UnavailableError
from podium.core.skip_reasons import (
    ALL_FAILED,
    JUDGE_BUDGET,
    JUDGE_ERROR,
    JUDGE_FAILED,
    JUDGE_MISCONFIGURED,
    JUDGE_UNAVAILABLE,
    NO_JUDGE_ANSWERS,
    TEACHER_ERROR,
    TEACHER_UNAVAILABLE,
)
from podium.core.spending import NOTHING
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_controller.domain.errors import DatabaseUnavailableError, JobFailedError, LeaseLostError
from podium_controller.domain.ports import GroupKey, Judge, Ledger
from podium_controller.domain.step_metrics import is_failed
from podium_controller.domain.timestamps import month
from podium_controller.domain.uncollected import UNCOLLECTED
from podium_controller.training.judge_spending import JudgeSpending, add_usage, usage_until
from podium_controller.training.recovery import Recovery, is_transient
from podium_controller.training.reporter import Reporter

_NOT_SCORED = (
    JUDGE_FAILED,
    JUDGE_BUDGET,
    JUDGE_UNAVAILABLE,
    JUDGE_ERROR,
    JUDGE_MISCONFIGURED,
    TEACHER_UNAVAILABLE,
    TEACHER_ERROR,
)
_FOR_GOOD = (JUDGE_BUDGET, JUDGE_UNAVAILABLE, TEACHER_UNAVAILABLE)


TEACHER = "The teacher"
NOT_SCORED = "not scored: "
"""How the explanation of an attempt without a score begins."""


class Scoring(Protocol):
    """Gives a collected group all that it needs to train, and stores it."""

    async def score(self, key: GroupKey, group: trajectory_pb2.Group) -> trajectory_pb2.Group:
        """The group as it trains, or with the reason why it does not."""


class NoJudging:
    """Stores groups as they are: nothing of demonstrations is compared."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def score(self, key: GroupKey, group: trajectory_pb2.Group) -> trajectory_pb2.Group:
        """See `Scoring`."""
        await self._ledger.save_judged(key, group, judge_pb.JudgeUsage(), month())
        return group


class JudgingUnlessShown:
    """Of a client's job: a batch of demonstrations is stored as it is, and others are scored."""

    def __init__(self, ledger: Ledger, scoring: Scoring) -> None:
        self._demonstrations = NoJudging(ledger)
        self._others = scoring

    async def score(self, key: GroupKey, group: trajectory_pb2.Group) -> trajectory_pb2.Group:
        """See `Scoring`."""
        chosen = self._demonstrations if group.batch_training.supervised else self._others
        return await chosen.score(key, group)


class Judging:
    """Scores one job's groups, and keeps what that costs."""

    def __init__(
        self,
        judge: Judge,
        reward: spec_pb2.RewardSpec,
        recovery: Recovery,
        ledger: Ledger,
        spending: JudgeSpending,
    ) -> None:
        """`spending` is the job's, of all that it has judged."""
        self._judge = judge
        self._reward = reward
        self._recovery = recovery
        self._ledger = ledger
        self._spending = spending

    async def score(self, key: GroupKey, group: trajectory_pb2.Group) -> trajectory_pb2.Group:
        """The scored group, stored; the reason why it has no scores stays on it.

        Raises:
            JobFailedError: the judge service stayed away for too long. When it is the
                judge's models that did, or it broke on the group or may not judge it, the group
                is skipped.
        """
        response = await self.ask(key, group)
        await self._ledger.save_judged(key, response.group, response.usage, month())
        return response.group

    async def ask(self, key: GroupKey, group: trajectory_pb2.Group) -> judge_pb.ScoreGroupResponse:
        """As `score`, and nothing is stored; raises as it does."""
        if group.skip_reason in UNCOLLECTED:
            return judge_pb.ScoreGroupResponse(group=group)
        used = judge_pb.JudgeUsage()
        try:
            answer = await self._recovery.run("judge", lambda: self._ask(key, group, used))
        except JobFailedError as error:
            if error.reason != NO_JUDGE_ANSWERS:
                raise
            unjudged = skipped(group, JUDGE_UNAVAILABLE, error.message)
            answer = judge_pb.ScoreGroupResponse(group=unjudged)
        # With what calls have used that came to nothing.
        answer.usage.CopyFrom(used)
        return answer

    async def _ask(
        self, key: GroupKey, group: trajectory_pb2.Group, used: judge_pb.JudgeUsage
    ) -> judge_pb.ScoreGroupResponse:
        """One answer; adds to `used` what it took, and what errors took."""
        request = judge_pb.ScoreGroupRequest(group=group, reward=self._reward)
        if not asks_others(self._reward):
            answer = await self._answer(request)
            add_usage(used, answer.usage)
            return answer
        least = NOTHING
        while True:
            async with self._spending.call(self._reward, least) as call:
                if call.refusal:
                    unjudged = skipped(group, JUDGE_BUDGET, call.refusal)
                    return judge_pb.ScoreGroupResponse(group=unjudged)
                # Replicas of the judge do not know what the others have spent, nor before.
                request.job_usage.CopyFrom(await self._ledger.judge_usage(key.job_id))
                if call.grant is not None:
                    request.grant.CopyFrom(call.grant)
                try:
                    answer = await self._answer(request)
                    call.used.CopyFrom(answer.usage)
                except PodiumError as error:
                    call.used.CopyFrom(usage_until(error))
                    raise
                finally:
                    add_usage(used, call.used)
            least = call.wanted(answer)
            if least == NOTHING:
                return answer
            group = answer.group

    async def _answer(self, request: judge_pb.ScoreGroupRequest) -> judge_pb.ScoreGroupResponse:
        try:
            return await self._judge.score(request)
        except DeadlineExceededError as error:
            raise UnavailableError(error.message, reason=NO_JUDGE_ANSWERS) from error
        except (DatabaseUnavailableError, LeaseLostError):
            raise
        except PodiumError as error:
            if is_transient(error):
                raise
            # A defect, or a key that is no more, but of this group: the others must not pay for it.
            refused = error.reason == JUDGE_MISCONFIGURED.upper()
            reason = JUDGE_MISCONFIGURED if refused else JUDGE_ERROR
            unjudged = skipped(request.group, reason, error.message)
            return judge_pb.ScoreGroupResponse(group=unjudged, usage=usage_until(error))


async def tell_unjudged(reporter: Reporter, group: trajectory_pb2.Group, step: int) -> None:
    """Says of a group that it has no scores, and why, where nobody has said it yet."""
    if unusable(group) not in ("", ALL_FAILED, JUDGE_BUDGET, *UNCOLLECTED):
        text = f"group {group.id} is skipped. {scorer(group)} says: {failure_text(group)}"
        await reporter.warn(text, step)


def skipped(group: trajectory_pb2.Group, reason: str, why: str) -> trajectory_pb2.Group:
    """A copy that does not train, in whose attempts stands why."""
    made = trajectory_pb2.Group()
    made.CopyFrom(group)
    made.skip_reason = reason
    for trajectory in made.trajectories:
        if not is_failed(trajectory):
            trajectory.explanation = f"{NOT_SCORED}{why}"
    return made


def unusable(group: trajectory_pb2.Group) -> str:
    """Why nothing can be learned from a scored group, and never could; empty otherwise.

    A group without variance is not unusable: it says something about the
    policy. One whose attempts all broke says something about the environment.
    """
    if group.skip_reason in UNCOLLECTED:
        return group.skip_reason
    if group.trajectories and all(map(is_failed, group.trajectories)):
        return ALL_FAILED
    return group.skip_reason if group.skip_reason in _NOT_SCORED else ""


def unjudgeable(groups: Sequence[trajectory_pb2.Group]) -> trajectory_pb2.Group | None:
    """The group that says why not one could be judged or taught; None when another round may help.

    Who may spend no more, or had no answer for as long as the job waits, is not asked
    again; but as long as one group of a step has scores, the job goes on with it
    (docs/decisions/0018).
    """
    if not all(group.skip_reason for group in groups):
        return None
    return next((g for g in groups if unusable(g) in _FOR_GOOD), None)


def failure_text(group: trajectory_pb2.Group) -> str:
    """What the group's attempts, or its judge or teacher, died of, in their own words."""
    failed = [trajectory for trajectory in group.trajectories if is_failed(trajectory)]
    if failed and unusable(group) in (ALL_FAILED, *UNCOLLECTED):
        failure = failed[0].failure
        return f"{failure.type}: {failure.message}" if failure.type else failure.message
    words = (each.explanation for each in group.trajectories if not is_failed(each))
    return next(filter(None, words), group.skip_reason)


def scorer(group: trajectory_pb2.Group) -> str:
    """Who did not score a group, for people."""
    return TEACHER if unusable(group) in (TEACHER_ERROR, TEACHER_UNAVAILABLE) else "The judge"
