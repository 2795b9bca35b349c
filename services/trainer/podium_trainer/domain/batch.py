"""From scored groups to the optimizer batch: what trains, with which advantage and weight."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from podium.core.errors import InvalidArgumentError, Violation
from podium.core.sides import by_side
from podium.core.skip_reasons import (
    ALL_FAILED,
    FAILED,
    GROUP_OF_ONE,
    NO_REWARD,
    NO_TRAINABLE_TRAJECTORY,
    OVER_MAX_ROW_TOKENS,
    OVERLONG,
    REWARD_NOT_FINITE,
    ZERO_VARIANCE,
)
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_trainer.domain.advantages import (
    Rewards,
    advantages,
    turn_advantages,
    turns_alike,
    turns_alone,
    zero_variance,
)
from podium_trainer.domain.aggregation import token_weight
from podium_trainer.domain.samples import (
    IntArray,
    Refused,
    Sample,
    read_samples,
)
from podium_trainer.domain.turns import Turns, read_turns

_BY_TURN = (spec_pb2.TURN_ADVANTAGE_RETURN_TO_GO, spec_pb2.TURN_ADVANTAGE_ADDED)


@dataclass(frozen=True)
class Weighted:
    """A sample with its share in the loss."""

    sample: Sample
    group: int
    """Which group of the batch: samples of one group are packed together."""
    trajectory: int
    """Which trajectory of the batch, from 0."""
    advantage: float | Rewards
    """A number for every trained token, or [k] one each."""
    weight: float
    """Of each trained token; the loss is the weighted sum of token losses."""


@dataclass
class Batch:
    """Everything that one optimizer step trains on, and what it leaves out and why."""

    samples: list[Weighted] = field(default_factory=list)
    trajectories: int = 0
    group_ids: list[str] = field(default_factory=list)
    """By the number that a sample has for its group."""
    skipped_groups: dict[str, str] = field(default_factory=dict)
    """Group id to reason."""
    skipped_trajectories: dict[str, str] = field(default_factory=dict)
    """Trajectory id to reason; of groups that train in part."""
    zero_variance_groups: int = 0
    """Groups that train on the KL alone."""
    turns: int = 0
    """Of the trajectories that train, where turns have advantages of their own."""
    turns_alone: int = 0
    """Turns among these to which no other attempt of the group came: their advantage is 0."""
    too_long: list[int] = field(default_factory=list)
    """Context tokens of each trajectory over `max_row_tokens`; of groups that are skipped too."""

    def turn_metrics(self) -> dict[str, float]:
        """What a step tells of turns; nothing when they have no advantages of their own."""
        return {"turns": self.turns, "turns_alone": self.turns_alone} if self.turns else {}

    def too_long_metrics(self) -> dict[str, float]:
        """What a step tells of `too_long`; nothing when there is none."""
        if not self.too_long:
            return {}
        return {
            "trajectories_over_max_row_tokens": len(self.too_long),
            "trajectory_tokens_max": max(self.too_long),
        }

    @property
    def trained_tokens(self) -> int:
        """Tokens that have a loss."""
        return sum(len(item.sample.targets) for item in self.samples)

    def tokens_by_trajectory(self) -> IntArray:
        """[N] trained tokens of each trajectory, over all its histories."""
        counts = np.zeros(self.trajectories, np.int64)
        for item in self.samples:
            counts[item.trajectory] += len(item.sample.targets)
        return counts


@dataclass(frozen=True)
class _Scored:
    """A group with a learning signal."""

    group: trajectory_pb2.Group
    index: int
    members: list[int]
    """Indices of the trajectories that count in the group's mean."""
    rewards: Rewards
    """Of the members."""
    reasons: dict[int, str]
    """Why the others do not count."""
    turns: list[Turns]
    """Of the members; none where turns have no advantages of their own."""

    @property
    def returns(self) -> list[Rewards]:
        """[T] of each member."""
        return [each.returns for each in self.turns]


@dataclass(frozen=True)
class _Attempt:
    samples: list[Sample]
    group: int
    advantages: Sequence[float | Rewards]
    """Of each sample."""

    @property
    def tokens(self) -> int:
        return sum(len(sample.targets) for sample in self.samples)


def build_batch(
    groups: Iterable[trajectory_pb2.Group], training: spec_pb2.TrainingSpec, vocabulary: int
) -> Batch:
    """Reads, normalises and weighs the groups of one step; each side of a group is one.

    Weights are of the whole batch, so that they do not depend on rows
    (`podium_trainer.domain.aggregation`). What is skipped counts in none.

    Raises:
        InvalidArgumentError: a token record contradicts itself, or an id comes twice.
    """
    batch = Batch()
    scored: list[_Scored] = []
    seen: set[str] = set()
    whole = list(groups)
    for group in whole:
        _refuse_repeated("group.id", group.id, seen)
        for trajectory in group.trajectories:
            _refuse_repeated("group.trajectories.id", trajectory.id, seen)
    sides = [side for group in whole for side in by_side(group)]
    batch.group_ids = [side.id for side in sides]
    for index, group in enumerate(sides):
        read = _score(group, index, training.loss)
        if isinstance(read, Refused):
            batch.skipped_groups[group.id] = read.reason
        else:
            scored.append(read)
    attempts: list[_Attempt] = []
    for found, values in zip(scored, _advantages(scored, training.loss), strict=True):
        read_attempts = _attempts(found, values, training, vocabulary, batch)
        if read_attempts:
            if not _supervised(training.loss) and not _taught(training.loss):
                batch.zero_variance_groups += _alike(found.rewards, found.returns, training.loss)
            batch.turns += sum(map(len, found.returns))
            batch.turns_alone += turns_alone(found.returns)
        attempts += read_attempts
    for group in whole:
        _join_sides(group, batch)
    _weigh(attempts, training.loss, batch)
    return batch


def row_budget(batch: Batch, row_tokens: int, training: spec_pb2.TrainingSpec) -> int:
    """The most nodes of a row.

    Memory grows with the row, so rows are as small as this machine likes them, `row_tokens`,
    unless a sample alone needs more or the job allows fewer.
    """
    longest = max(len(item.sample.context) for item in batch.samples)
    wanted = max(row_tokens, longest)
    return min(training.max_row_tokens, wanted) if training.HasField("max_row_tokens") else wanted


def _join_sides(group: trajectory_pb2.Group, batch: Batch) -> None:
    """A group of several sides is skipped when all of them are; else their trajectories are."""
    sides = by_side(group)
    reasons = [batch.skipped_groups.pop(side.id, "") for side in sides]
    if all(reasons):
        batch.skipped_groups[group.id] = reasons[0]
        return
    for side, reason in zip(sides, reasons, strict=True):
        if reason:
            batch.skipped_trajectories.update({each.id: reason for each in side.trajectories})


def _weigh(attempts: Sequence[_Attempt], loss: spec_pb2.LossSpec, batch: Batch) -> None:
    batch.trajectories = len(attempts)
    total = sum(attempt.tokens for attempt in attempts)
    for number, attempt in enumerate(attempts):
        weight = token_weight(loss, trajectories=len(attempts), tokens=total, own=attempt.tokens)
        batch.samples += [
            Weighted(sample, attempt.group, number, advantage, weight)
            for sample, advantage in zip(attempt.samples, attempt.advantages, strict=True)
        ]


def _supervised(loss: spec_pb2.LossSpec) -> bool:
    return loss.objective == spec_pb2.OBJECTIVE_SUPERVISED


def _taught(loss: spec_pb2.LossSpec) -> bool:
    return loss.teacher_coefficient > 0


def _score(group: trajectory_pb2.Group, index: int, loss: spec_pb2.LossSpec) -> _Scored | Refused:
    if _supervised(loss):
        everyone = list(range(len(group.trajectories)))
        return _Scored(group, index, everyone, np.zeros(len(everyone)), {}, [])
    if group.skip_reason:
        return Refused(group.skip_reason)
    if _taught(loss) and not loss.reward_coefficient:
        failed = {i: FAILED for i, each in enumerate(group.trajectories) if _is_failed(each)}
        everyone = [i for i in range(len(group.trajectories)) if i not in failed]
        if not everyone:
            return Refused(ALL_FAILED)
        return _Scored(group, index, everyone, np.zeros(len(everyone)), failed, [])
    unscored = {i: _unscored(each) for i, each in enumerate(group.trajectories)}
    rewards = {
        i: _reward(group.trajectories[i], loss) for i, reason in unscored.items() if not reason
    }
    turns = {}
    if loss.turn_advantage in _BY_TURN:
        for i, reward in rewards.items():
            turns[i] = read_turns(group.trajectories[i], reward, loss.turn_discount)
            if not np.isfinite(turns[i].returns).all():
                unscored[i] = REWARD_NOT_FINITE
    members = [i for i, reason in unscored.items() if not reason]
    if not members:
        return Refused(ALL_FAILED)
    # A teacher has something to say of each token, whatever the others did.
    if len(members) == 1 and not _taught(loss):
        return Refused(GROUP_OF_ONE)
    scored = _Scored(
        group,
        index,
        members,
        np.array([rewards[i] for i in members], np.float64),
        {i: reason for i, reason in unscored.items() if reason},
        [turns[i] for i in members if i in turns],
    )
    # Alike rewards say nothing about the policy; a KL in the loss still does.
    kl_in_loss = loss.kl_coefficient and loss.kl_placement != spec_pb2.KL_PLACEMENT_ADVANTAGE
    teaches = kl_in_loss or _taught(loss)
    if _alike(scored.rewards, scored.returns, loss) and not teaches:
        return Refused(ZERO_VARIANCE)
    return scored


def _reward(trajectory: trajectory_pb2.Trajectory, loss: spec_pb2.LossSpec) -> float:
    penalized = loss.overlong == spec_pb2.OVERLONG_PENALIZE and is_overlong(trajectory)
    return trajectory.reward - loss.overlong_penalty * penalized


def _alike(rewards: Rewards, returns: Sequence[Rewards], loss: spec_pb2.LossSpec) -> bool:
    """Whether a group's attempts are all alike in what the loss uses: rewards, returns or both."""
    if loss.turn_advantage == spec_pb2.TURN_ADVANTAGE_RETURN_TO_GO:
        return turns_alike(returns)
    if loss.turn_advantage == spec_pb2.TURN_ADVANTAGE_ADDED:
        return zero_variance(rewards) and turns_alike(returns)
    return zero_variance(rewards)


def _advantages(
    scored: Sequence[_Scored], loss: spec_pb2.LossSpec
) -> list[Rewards | list[Rewards]]:
    """By group: [G] a number an attempt, or [T] a number a turn of each attempt."""
    if _supervised(loss):
        return [np.ones_like(found.rewards) for found in scored]
    if _taught(loss) and loss.reward_coefficient != 1:
        # The teacher's part is added where the policy's own log-probs are.
        plain = spec_pb2.LossSpec()
        plain.CopyFrom(loss)
        plain.reward_coefficient = 1
        return [
            loss.reward_coefficient * values
            if isinstance(values, np.ndarray)
            else [loss.reward_coefficient * turns for turns in values]
            for values in _advantages(scored, plain)
        ]
    whole = advantages([found.rewards for found in scored], loss.advantage, loss.deviation)
    if loss.turn_advantage not in _BY_TURN:
        return [*whole]
    each = turn_advantages([found.returns for found in scored], loss.advantage, loss.deviation)
    if loss.turn_advantage == spec_pb2.TURN_ADVANTAGE_RETURN_TO_GO:
        return [*each]
    return [
        [value + loss.turn_weight * turns for value, turns in zip(values, group, strict=True)]
        for values, group in zip(whole, each, strict=True)
    ]


def _attempts(
    scored: _Scored,
    values: Rewards | list[Rewards],
    training: spec_pb2.TrainingSpec,
    vocabulary: int,
    batch: Batch,
) -> list[_Attempt]:
    # An attempt that cannot be packed still tells what the scenario is worth: it stays in
    # the baseline, and leaves only the loss.
    attempts = []
    reasons = dict(scored.reasons)
    for place, (i, advantage) in enumerate(zip(scored.members, values, strict=True)):
        trajectory = scored.group.trajectories[i]
        samples = read_samples(
            trajectory,
            vocabulary=vocabulary,
            max_tokens=_max_tokens(training),
            supervised=_supervised(training.loss),
            taught=_taught(training.loss),
        )
        if isinstance(samples, Refused):
            reasons[i] = samples.reason
            if samples.reason == OVER_MAX_ROW_TOKENS:
                batch.too_long.append(samples.tokens)
        elif training.loss.overlong == spec_pb2.OVERLONG_MASK and is_overlong(trajectory):
            reasons[i] = OVERLONG
        else:
            shares: Sequence[float | Rewards]
            if scored.turns:
                shares = scored.turns[place].spread(advantage)
            else:
                shares = [float(advantage)] * len(samples)
            attempts.append(_Attempt(samples, scored.index, shares))
    if attempts:
        batch.skipped_trajectories.update(
            {scored.group.trajectories[i].id: reason for i, reason in reasons.items()}
        )
    else:
        batch.skipped_groups[scored.group.id] = NO_TRAINABLE_TRAJECTORY
    return attempts


def _max_tokens(training: spec_pb2.TrainingSpec) -> int | None:
    """A job of the controller has a number; who opens the trainer alone may leave it out."""
    return training.max_row_tokens if training.HasField("max_row_tokens") else None


def is_overlong(trajectory: trajectory_pb2.Trajectory) -> bool:
    """Whether the attempt was cut: by max_tokens in a generation, or by the context."""
    return trajectory.stop_reason == trajectory_pb2.STOP_REASON_CONTEXT_LENGTH or any(
        span.finish_reason == trajectory_pb2.FINISH_REASON_LENGTH
        for history in trajectory.histories
        for span in history.tokens.spans
    )


def _is_failed(trajectory: trajectory_pb2.Trajectory) -> bool:
    return trajectory.stop_reason == trajectory_pb2.STOP_REASON_FAILED


def _unscored(trajectory: trajectory_pb2.Trajectory) -> str:
    """Why a trajectory does not count in its group; empty when it does."""
    if _is_failed(trajectory):
        return FAILED
    if not trajectory.HasField("reward"):
        return NO_REWARD
    return "" if math.isfinite(trajectory.reward) else REWARD_NOT_FINITE


def _refuse_repeated(name: str, value: str, seen: set[str]) -> None:
    if value in seen:
        raise InvalidArgumentError(violations=[Violation(name, f"{value!r} came twice")])
    seen.add(value)
