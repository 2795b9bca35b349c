"""Rewards of a group to advantages.

GRPO (arXiv 2402.03300, section 4.1.2): the group's mean is the baseline. With
`std` the difference is divided by the group's *population* deviation + 1e-6;
with `none` it is left as it is (Dr. GRPO, arXiv 2503.20783).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from podium.types.v1 import spec_pb2

STD_EPSILON = 1e-6

VARIANCE_TOLERANCE = 1e-6
"""Rewards whose range is at most this, relative to the greatest magnitude or 1, are equal."""


def zero_variance(rewards: NDArray[np.float64]) -> bool:
    """Whether rewards differ by no more than float noise.

    Without the tolerance a difference of 1e-9 would be divided by a deviation as
    small, and noise would train.
    """
    scale = max(1.0, float(np.abs(rewards).max()))
    return float(rewards.max() - rewards.min()) <= VARIANCE_TOLERANCE * scale


def advantages(
    rewards: NDArray[np.float64], kind: spec_pb2.AdvantageKind.ValueType
) -> NDArray[np.float64]:
    """[G] finite rewards → [G] advantages, which sum to 0."""
    centred = rewards - rewards.mean()
    if kind == spec_pb2.ADVANTAGE_KIND_NONE:
        return centred
    return centred / (rewards.std() + STD_EPSILON)
