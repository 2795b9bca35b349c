"""Rewards of groups to advantages.

The group's mean is the baseline (GRPO, arXiv 2402.03300, section 4.1.2). `std` divides
by the group's deviation + 1e-6, `none` by nothing (Dr. GRPO, arXiv 2503.20783), `batch`
by the deviation of all rewards of the step + 1e-6 (arXiv 2508.08221). The deviation is
the population's, as in ART, or the sample's, as in TRL and verl.

Of turns, the baseline is the mean return of the attempts at the same turn: REINFORCE with
reward-to-go and a baseline by time (E. Greensmith, P. Bartlett, J. Baxter, "Variance
reduction techniques for gradient estimates in reinforcement learning", JMLR 5, 2004), with
the group in place of a critic; rLLM's `per_step` groups turns so. The deviation is of a
whole group, over all its turns, as in GRPO's process supervision (arXiv 2402.03300, section
4.1.3): that of a turn which two attempts came to says little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from podium.core.means import unit_of
from podium.core.variance import VARIANCE_TOLERANCE
from podium.types.v1 import spec_pb2

EPSILON = 1e-6

Rewards = NDArray[np.float64]


def zero_variance(rewards: Rewards, one: float = 1.0) -> bool:
    """Whether rewards, counted in a unit in which 1 is `one`, differ by no more than float noise.

    Without the tolerance a difference of 1e-9 would be divided by a deviation as
    small, and noise would train.
    """
    scale = max(one, float(np.abs(rewards).max()))
    return float(rewards.max()) - float(rewards.min()) <= VARIANCE_TOLERANCE * scale


def advantages(
    groups: Sequence[Rewards],
    kind: spec_pb2.AdvantageKind.ValueType,
    deviation: spec_pb2.Deviation.ValueType = spec_pb2.DEVIATION_POPULATION,
) -> list[Rewards]:
    """Finite rewards of a step's groups, [G] each → [G] advantages each, which sum to 0.

    Groups have at least two rewards. One whose rewards are all alike has advantages of 0.
    """
    free = 1 if deviation == spec_pb2.DEVIATION_SAMPLE else 0
    everyone = _unit(groups)
    counts = [each / everyone for each in groups]
    whole = float(np.concatenate(counts).std(ddof=free)) if counts else 0.0

    def scaled(rewards: Rewards) -> Rewards:
        if zero_variance(rewards):
            return np.zeros_like(rewards)
        unit = everyone if kind == spec_pb2.ADVANTAGE_KIND_BATCH else _unit([rewards])
        counted = rewards / unit
        centred: Rewards = counted - counted.mean()
        if kind == spec_pb2.ADVANTAGE_KIND_NONE:
            return centred * unit
        spread = whole
        if kind != spec_pb2.ADVANTAGE_KIND_BATCH:
            spread = float(counted.std(ddof=free))
        result: Rewards = centred / (spread + EPSILON / unit)
        return result

    return [scaled(rewards) for rewards in groups]


def _unit(rewards: Iterable[Rewards]) -> float:
    """In which finite rewards have squares that are numbers.

    Of 1e200 the deviation would be infinite, and all advantages 0.
    """
    most = max((float(np.abs(each).max()) for each in rewards if len(each)), default=0.0)
    return unit_of(most)


def turns_alike(returns: Sequence[Rewards]) -> bool:
    """Whether no turn's return, [T] of each attempt, tells one attempt from another."""
    return all(zero_variance(column) for _, column in _columns(returns))


def turn_advantages(
    groups: Sequence[Sequence[Rewards]],
    kind: spec_pb2.AdvantageKind.ValueType,
    deviation: spec_pb2.Deviation.ValueType = spec_pb2.DEVIATION_POPULATION,
) -> list[list[Rewards]]:
    """Finite returns of a step's groups, [T] of each attempt → [T] advantages of each.

    A turn of one attempt alone, or at which all returns are alike, has advantage 0. Where
    every attempt has one turn it is `advantages`.
    """
    free = 1 if deviation == spec_pb2.DEVIATION_SAMPLE else 0
    unit = _unit(returns for group in groups for returns in group)
    groups = [[returns / unit for returns in group] for group in groups]
    every = [returns for group in groups for returns in group]
    whole = float(np.concatenate(every).std(ddof=free)) if every else 0.0

    def scaled(group: Sequence[Rewards]) -> list[Rewards]:
        result = [np.zeros_like(returns) for returns in group]
        squares, count = 0.0, 0
        for turn, column in _columns(group):
            if zero_variance(column, 1 / unit):
                continue
            centred = column - column.mean()
            squares += float(np.square(centred).sum())
            count += len(column) - free
            for index, value in zip(_there(group, turn), centred, strict=True):
                result[index][turn] = value
        if kind == spec_pb2.ADVANTAGE_KIND_NONE or not count:
            return [returns * unit for returns in result]
        batch = kind == spec_pb2.ADVANTAGE_KIND_BATCH
        spread = whole if batch else float(np.sqrt(squares / count))
        return [returns / (spread + EPSILON / unit) for returns in result]

    return [scaled(group) for group in groups]


def turns_alone(group: Sequence[Rewards]) -> int:
    """How many turns only one attempt came to."""
    return sum(len(column) == 1 for _, column in _columns(group))


def _columns(group: Sequence[Rewards]) -> Iterator[tuple[int, Rewards]]:
    """Each turn's number, and the returns of those who came to it, by attempt."""
    for turn in range(max(map(len, group), default=0)):
        yield turn, np.array([group[index][turn] for index in _there(group, turn)])


def _there(group: Sequence[Rewards], turn: int) -> list[int]:
    return [index for index, returns in enumerate(group) if len(returns) > turn]
