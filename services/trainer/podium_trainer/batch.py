"""From scored groups to the optimizer batch: what trains, with which advantage and weight."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from podium.core.errors import InvalidArgumentError, Violation
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_trainer.advantages import advantages, zero_variance
from podium_trainer.samples import (
    GREEDY,
    MISSING_LOGPROBS,
    NO_SAMPLED_TOKENS,
    OVER_MAX_ROW_TOKENS,
    Refused,
    Sample,
    read_samples,
)

ALL_FAILED = "all_failed"
GROUP_OF_ONE = "group_of_one"
ZERO_VARIANCE = "zero_variance"
NO_TRAINABLE_TRAJECTORY = "no_trainable_trajectory"
FAILED = "failed"
NO_REWARD = "no_reward"
REWARD_NOT_FINITE = "reward_not_finite"

JUDGE_FAILED = "judge_failed"
"""The judge's reason, in Group.skip_reason."""

REASONS = frozenset(
    {
        ALL_FAILED,
        FAILED,
        GREEDY,
        GROUP_OF_ONE,
        JUDGE_FAILED,
        MISSING_LOGPROBS,
        NO_REWARD,
        NO_SAMPLED_TOKENS,
        NO_TRAINABLE_TRAJECTORY,
        OVER_MAX_ROW_TOKENS,
        REWARD_NOT_FINITE,
        ZERO_VARIANCE,
    }
)
"""Every reason of ours for which something does not train."""


@dataclass(frozen=True)
class Weighted:
    """A sample with its share in the loss."""

    sample: Sample
    group: int
    """Which group of the batch: samples of one group are packed together."""
    trajectory: int
    """Which trajectory of the batch, from 0."""
    advantage: float
    weight: float
    """Of each trained token; the loss is the weighted sum of token losses."""


@dataclass
class Batch:
    """Everything that one optimizer step trains on, and what it leaves out and why."""

    samples: list[Weighted] = field(default_factory=list)
    trajectories: int = 0
    skipped_groups: dict[str, str] = field(default_factory=dict)
    """Group id to reason."""
    skipped_trajectories: dict[str, str] = field(default_factory=dict)
    """Trajectory id to reason; of groups that train in part."""

    @property
    def trained_tokens(self) -> int:
        """Tokens that have a loss."""
        return sum(len(item.sample.targets) for item in self.samples)


@dataclass(frozen=True)
class _Attempt:
    samples: list[Sample]
    group: int
    advantage: float

    @property
    def tokens(self) -> int:
        return sum(len(sample.targets) for sample in self.samples)


def build_batch(
    groups: Iterable[trajectory_pb2.Group], training: spec_pb2.TrainingSpec, vocabulary: int
) -> Batch:
    """Reads, normalises and weighs the groups of one step.

    Weights are of the whole batch, so that they depend neither on rows nor on
    micro-batches: `token` gives every trained token 1 / (all trained tokens),
    `sequence` gives a token 1 / (trajectories · trained tokens of its trajectory,
    over all its histories). What is skipped counts in neither.

    Raises:
        InvalidArgumentError: a token record contradicts itself, or an id comes twice.
    """
    batch = Batch()
    attempts: list[_Attempt] = []
    seen: set[str] = set()
    for index, group in enumerate(groups):
        _refuse_repeated("group.id", group.id, seen)
        for trajectory in group.trajectories:
            _refuse_repeated("group.trajectories.id", trajectory.id, seen)
        read = _read_group(group, index, training, vocabulary, batch.skipped_trajectories)
        if isinstance(read, Refused):
            batch.skipped_groups[group.id] = read.reason
        else:
            attempts += read
    batch.trajectories = len(attempts)
    total = sum(attempt.tokens for attempt in attempts)
    by_sequence = training.loss.aggregation == spec_pb2.AGGREGATION_KIND_SEQUENCE
    for number, attempt in enumerate(attempts):
        weight = 1 / (len(attempts) * attempt.tokens) if by_sequence else 1 / total
        batch.samples += [
            Weighted(sample, attempt.group, number, attempt.advantage, weight)
            for sample in attempt.samples
        ]
    return batch


def _read_group(
    group: trajectory_pb2.Group,
    index: int,
    training: spec_pb2.TrainingSpec,
    vocabulary: int,
    skipped: dict[str, str],
) -> list[_Attempt] | Refused:
    if group.skip_reason:
        return Refused(group.skip_reason)
    unscored = [_unscored(trajectory) for trajectory in group.trajectories]
    scored = [i for i, reason in enumerate(unscored) if not reason]
    if not scored:
        return Refused(ALL_FAILED)
    if len(scored) == 1:
        return Refused(GROUP_OF_ONE)
    rewards = np.array([group.trajectories[i].reward for i in scored], np.float64)
    if zero_variance(rewards):
        return Refused(ZERO_VARIANCE)
    # An attempt that cannot be packed still tells what the scenario is worth: it stays in
    # the baseline, and leaves only the loss.
    values = advantages(rewards, training.loss.advantage)
    attempts = []
    reasons = {i: reason for i, reason in enumerate(unscored) if reason}
    for i, advantage in zip(scored, values, strict=True):
        samples = read_samples(
            group.trajectories[i], vocabulary=vocabulary, max_tokens=training.max_row_tokens
        )
        if isinstance(samples, Refused):
            reasons[i] = samples.reason
        else:
            attempts.append(_Attempt(samples, index, float(advantage)))
    if not attempts:
        return Refused(NO_TRAINABLE_TRAJECTORY)
    skipped.update({group.trajectories[i].id: reason for i, reason in reasons.items()})
    return attempts


def _unscored(trajectory: trajectory_pb2.Trajectory) -> str:
    """Why a trajectory has no say in its group, or nothing."""
    if trajectory.stop_reason == trajectory_pb2.STOP_REASON_FAILED:
        return FAILED
    if not trajectory.HasField("reward"):
        return NO_REWARD
    return "" if math.isfinite(trajectory.reward) else REWARD_NOT_FINITE


def _refuse_repeated(name: str, value: str, seen: set[str]) -> None:
    if value in seen:
        raise InvalidArgumentError(violations=[Violation(name, f"{value!r} came twice")])
    seen.add(value)
