"""Scores a group: runs the scorers and adds them up into each attempt's reward."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from podium.core import skip_reasons
from podium.core.contract.judging import PART_FIELDS, JudgedSpec, judged_spec
from podium.core.errors import InvalidArgumentError, Violation
from podium.core.sides import by_side
from podium.core.spending import Amount
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_judge.domain.least import bound_violations
from podium_judge.domain.ruler import RulerScorer
from podium_judge.domain.scores import GroupScores, GroupSkippedError, Score, Unscored, Usage
from podium_judge.domain.weighted import WeightedScorer

INDEPENDENT_REWARD = "independent_reward"
"""ART's name, in the metrics of an attempt that RULER scored, for the environment's reward."""


class GroupScorer(Protocol):
    """A scorer that looks at a whole group, and asks others about it."""

    @property
    def kind(self) -> str:
        """The name of its part of the reward."""
        ...

    def least(self) -> Amount:
        """What its first questions about the shortest attempt can take."""
        ...

    async def score(
        self,
        group: trajectory_pb2.Group,
        trajectories: Sequence[trajectory_pb2.Trajectory],
        usage: Usage,
        *,
        alone: bool,
    ) -> GroupScores:
        """A score, or why there is none, for each of `trajectories`, which did not fail.

        Adds the cost to `usage`. `alone` says that no other scorer tells attempts apart.

        Raises:
            GroupSkippedError: the group cannot be scored.
            UnavailableError, FailedPreconditionError: who was asked is away, or set up wrongly.
        """
        ...


GroupSpec = JudgedSpec | spec_pb2.HttpScorerSpec
ScorerFactory = Callable[[GroupSpec, str], GroupScorer]
"""Makes the scorer of a specification that stands at a field path in the request."""
JudgeCheck = Callable[[JudgedSpec, str], Awaitable[list[Violation]]]
"""What is wrong with the judges of a specification that stands at a field path."""
ScorerCheck = Callable[[GroupSpec, str], Awaitable[list[Violation]]]
"""The same of whoever is asked, judges and scorers over HTTP."""


class AttemptScorer(Protocol):
    """A scorer that needs one attempt alone, and nobody."""

    @property
    def kind(self) -> str:
        """The name of its part of the reward."""
        ...

    def score(self, trajectory: trajectory_pb2.Trajectory) -> Score | Unscored:
        """The score, or why there is none."""
        ...


class EnvironmentScorer:
    """The environment's own reward, passed through."""

    kind = "environment"

    def score(self, trajectory: trajectory_pb2.Trajectory) -> Score | Unscored:
        """The environment's reward, or that it gave none."""
        if not trajectory.HasField("environment_reward"):
            return Unscored("environment: it gave no reward")
        if not math.isfinite(trajectory.environment_reward):
            return Unscored("environment: its reward is not finite")
        return Score(trajectory.environment_reward)


@dataclass(frozen=True)
class _Part:
    name: str
    weight: float
    kind: str
    of_attempt: AttemptScorer | None = None
    of_group: GroupScorer | None = None


def _part(spec: spec_pb2.Scorer, field: str, make: ScorerFactory) -> _Part:
    match spec.kind:
        case spec_pb2.SCORER_KIND_ENVIRONMENT:
            return _alone(spec.weight, EnvironmentScorer())
        case spec_pb2.SCORER_KIND_WEIGHTED:
            return _alone(spec.weight, WeightedScorer(spec.weighted, f"{field}.weighted"))
        case spec_pb2.SCORER_KIND_RULER:
            return _together(spec.weight, make(spec.ruler, f"{field}.ruler"))
        case spec_pb2.SCORER_KIND_RUBRIC:
            return _together(spec.weight, make(spec.rubric, f"{field}.rubric"))
        case spec_pb2.SCORER_KIND_HTTP:
            return _together(spec.weight, make(spec.http, f"{field}.http"))
    allowed = ", ".join(spec_pb2.ScorerKind.keys()[1:])
    raise InvalidArgumentError(
        violations=[Violation(f"{field}.kind", f"got {spec.kind}; allowed are {allowed}")]
    )


def _alone(weight: float, scorer: AttemptScorer) -> _Part:
    return _Part(scorer.kind, weight, scorer.kind, of_attempt=scorer)


def _together(weight: float, scorer: GroupScorer) -> _Part:
    return _Part(scorer.kind, weight, scorer.kind, of_group=scorer)


def _parts(reward: spec_pb2.RewardSpec, make: ScorerFactory) -> list[_Part]:
    """The scorers with the names of their parts: `ruler`, `ruler_2`, …"""
    if not reward.scorers:
        return [_alone(1.0, EnvironmentScorer())]
    parts: list[_Part] = []
    violations: list[Violation] = []
    for index, spec in enumerate(reward.scorers):
        try:
            part = _part(spec, f"reward.scorers[{index}]", make)
        except InvalidArgumentError as error:
            violations.extend(error.violations)
            continue
        same = sum(each.kind == part.kind for each in parts)
        parts.append(replace(part, name=f"{part.kind}_{same + 1}") if same else part)
    if violations:
        raise InvalidArgumentError(violations=violations)
    return parts


async def check_reward(
    reward: spec_pb2.RewardSpec,
    make: ScorerFactory,
    judge_violations: JudgeCheck,
    refusals: ScorerCheck,
) -> None:
    """Whether groups can be scored so; `reward` has its defaults filled in.

    Args:
        judge_violations: which of the judges at a field path are the policy in training.
        refusals: who refuses its key or address, of judges and scorers over HTTP.

    Raises:
        InvalidArgumentError: with every violation.
    """
    parts = _parts(reward, make)
    least = [part.of_group.least() for part in parts if part.of_group is not None]
    if found := bound_violations(reward, "reward", least):
        raise InvalidArgumentError(violations=found)
    asking = [
        (asked, f"reward.scorers[{index}].{PART_FIELDS[spec.kind]}")
        for index, spec in enumerate(reward.scorers)
        if (asked := _asking(spec)) is not None
    ]
    for asked, field in asking:
        if not isinstance(asked, spec_pb2.HttpScorerSpec):
            found += await judge_violations(asked, field)
    if found:
        raise InvalidArgumentError(violations=found, reason="POLICY_JUDGES_ITSELF")
    for asked, field in asking:
        found += await refusals(asked, field)
    if found:
        raise InvalidArgumentError(violations=found, reason="JUDGE_MISCONFIGURED")


def _asking(spec: spec_pb2.Scorer) -> GroupSpec | None:
    """What says whom a scorer asks; None where it asks nobody."""
    return spec.http if spec.kind == spec_pb2.SCORER_KIND_HTTP else judged_spec(spec)


def _check(group: trajectory_pb2.Group) -> None:
    if not group.trajectories:
        raise InvalidArgumentError(
            violations=[Violation("group.trajectories", "got none; allowed is at least one")]
        )


def _cleared(group: trajectory_pb2.Group) -> trajectory_pb2.Group:
    scored = trajectory_pb2.Group()
    scored.CopyFrom(group)
    scored.skip_reason = ""
    judged_before = [judgement.part for judgement in scored.judgements]
    scored.ClearField("judgements")
    for trajectory in scored.trajectories:
        for part in judged_before:
            trajectory.metrics.pop(f"{part}_score", None)
            trajectory.metrics.pop(INDEPENDENT_REWARD, None)
            for name in [each for each in trajectory.metrics if each.startswith(f"{part}/")]:
                del trajectory.metrics[name]
        trajectory.ClearField("reward")
        trajectory.ClearField("environment_weight")
        trajectory.reward_parts.clear()
        trajectory.explanation = ""
    return scored


def _write(
    trajectory: trajectory_pb2.Trajectory,
    parts: Sequence[_Part],
    verdicts: Sequence[Score | Unscored],
) -> bool:
    """Puts the verdicts into the attempt; whether it now has a reward."""
    missing = [verdict.reason for verdict in verdicts if isinstance(verdict, Unscored)]
    if missing:
        trajectory.explanation = "not scored: " + "; ".join(missing)
        return False
    words = []
    total = 0.0
    for part, verdict in zip(parts, verdicts, strict=True):
        assert isinstance(verdict, Score)
        total += part.weight * verdict.value
        trajectory.reward_parts[part.name] = verdict.value
        if verdict.explanation:
            words.append((part.name, verdict.explanation))
    if not math.isfinite(total):
        trajectory.reward_parts.clear()
        trajectory.explanation = "not scored: the weighted sum is not finite"
        return False
    trajectory.reward = total
    trajectory.environment_weight = math.fsum(
        part.weight for part in parts if part.kind == EnvironmentScorer.kind
    )
    _write_art_metrics(trajectory, parts)
    for part, verdict in zip(parts, verdicts, strict=True):
        assert isinstance(verdict, Score)
        for criterion, score in verdict.criteria:
            trajectory.metrics[f"{part.name}/{criterion}"] = score
    trajectory.explanation = (
        words[0][1] if len(words) == 1 else "\n".join(f"{name}: {text}" for name, text in words)
    )
    return True


def _write_art_metrics(trajectory: trajectory_pb2.Trajectory, parts: Sequence[_Part]) -> None:
    names = [part.name for part in parts if part.kind == RulerScorer.kind]
    for name in names:
        trajectory.metrics[f"{name}_score"] = trajectory.reward_parts[name]
    own = trajectory.HasField("environment_reward") and math.isfinite(trajectory.environment_reward)
    if names and own:
        trajectory.metrics[INDEPENDENT_REWARD] = trajectory.environment_reward


async def score_group(
    group: trajectory_pb2.Group,
    reward: spec_pb2.RewardSpec,
    make: ScorerFactory,
    usage: Usage,
) -> trajectory_pb2.Group:
    """A copy of `group` with rewards, or with a skip_reason and none.

    `reward` has its defaults filled in. The reward of an attempt is the sum of
    weight times score; `reward_parts` holds the scores before weighting, and
    `metrics` RULER's once more under the names that ART's users know. An
    attempt that failed, or that lacks what a scorer needs, has no reward and its
    explanation says why; the others are scored. Equal rewards are left to the
    trainer. The sides of an episode are groups of their own: the whole is skipped
    when all of them are. Adds the cost to `usage`.

    Raises:
        InvalidArgumentError: no attempts, or a scorer that does not exist or is
            wrongly set up.
        UnavailableError, FailedPreconditionError: see `JudgeModel.ask`.
    """
    _check(group)
    sides = by_side(group)
    if len(sides) > 1:
        scored_sides = [await score_group(side, reward, make, usage) for side in sides]
        return _joined(group, scored_sides)
    parts = _parts(reward, make)
    scored = _cleared(group)
    running = []
    for trajectory in scored.trajectories:
        if trajectory.stop_reason == trajectory_pb2.STOP_REASON_FAILED:
            trajectory.explanation = "not scored: the attempt failed"
        else:
            running.append(trajectory)
    if not running:
        scored.skip_reason = skip_reasons.ALL_FAILED
        return scored
    verdicts: list[list[Score | Unscored]] = [[] for _ in running]
    for part in parts:
        try:
            found = await _part_verdicts(part, scored, running, usage, alone=len(parts) == 1)
        except GroupSkippedError as skipped:
            scored.skip_reason = skipped.reason
            if skipped.judgement:
                _keep(scored, part, skipped.judgement)
            for trajectory in running:
                trajectory.explanation = f"not scored: {skipped}"
            return scored
        for attempt, verdict in zip(verdicts, found, strict=True):
            attempt.append(verdict)
    rewarded = [
        _write(trajectory, parts, row) for trajectory, row in zip(running, verdicts, strict=True)
    ]
    if not any(rewarded):
        scored.skip_reason = skip_reasons.NO_REWARD
    return scored


def _joined(
    group: trajectory_pb2.Group, sides: Sequence[trajectory_pb2.Group]
) -> trajectory_pb2.Group:
    joined = _cleared(group)
    found = {trajectory.id: trajectory for side in sides for trajectory in side.trajectories}
    for trajectory in joined.trajectories:
        trajectory.CopyFrom(found[trajectory.id])
    for side in sides:
        joined.judgements.extend(side.judgements)
    if all(side.skip_reason for side in sides):
        joined.skip_reason = sides[0].skip_reason
    return joined


async def _part_verdicts(
    part: _Part,
    group: trajectory_pb2.Group,
    trajectories: Sequence[trajectory_pb2.Trajectory],
    usage: Usage,
    *,
    alone: bool,
) -> list[Score | Unscored]:
    if part.of_attempt is not None:
        return [part.of_attempt.score(trajectory) for trajectory in trajectories]
    assert part.of_group is not None
    found = await part.of_group.score(group, trajectories, usage, alone=alone)
    _keep(group, part, found.judgement)
    return found.verdicts


def _keep(group: trajectory_pb2.Group, part: _Part, judgement: trajectory_pb2.Judgement) -> None:
    if judgement.opinions:
        group.judgements.add(part=part.name).MergeFrom(judgement)
