"""Rewards of groups to advantages.

The group's mean is the baseline (GRPO, arXiv 2402.03300, section 4.1.2). `std` divides
by the group's deviation + 1e-6, `none` by nothing (Dr. GRPO, arXiv 2503.20783), `batch`
by the deviation of all rewards of the step + 1e-6 (arXiv 2508.08221). The deviation is
the population's, as in ART, or the sample's, as in TRL and verl.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from podium.types.v1 import spec_pb2

EPSILON = 1e-6

VARIANCE_TOLERANCE = 1e-6
"""Rewards whose range is at most this, relative to the greatest magnitude or 1, are equal."""

Rewards = NDArray[np.float64]


def zero_variance(rewards: Rewards) -> bool:
    """Whether rewards differ by no more than float noise.

    Without the tolerance a difference of 1e-9 would be divided by a deviation as
    small, and noise would train.
    """
    scale = max(1.0, float(np.abs(rewards).max()))
    return float(rewards.max() - rewards.min()) <= VARIANCE_TOLERANCE * scale


def advantages(
    groups: Sequence[Rewards],
    kind: spec_pb2.AdvantageKind.ValueType,
    deviation: spec_pb2.Deviation.ValueType = spec_pb2.DEVIATION_POPULATION,
) -> list[Rewards]:
    """Finite rewards of a step's groups, [G] each → [G] advantages each, which sum to 0.

    Groups have at least two rewards. One whose rewards are all alike has advantages of 0.
    """
    free = 1 if deviation == spec_pb2.DEVIATION_SAMPLE else 0
    whole = float(np.concatenate(groups).std(ddof=free)) if groups else 0.0

    def scaled(rewards: Rewards) -> Rewards:
        if zero_variance(rewards):
            return np.zeros_like(rewards)
        centred: Rewards = rewards - rewards.mean()
        if kind == spec_pb2.ADVANTAGE_KIND_NONE:
            return centred
        spread = whole
        if kind != spec_pb2.ADVANTAGE_KIND_BATCH:
            spread = float(rewards.std(ddof=free))
        result: Rewards = centred / (spread + EPSILON)
        return result

    return [scaled(rewards) for rewards in groups]
