"""Correction for a sampler whose log-probs are not the trainer's.

Truncated importance sampling multiplies a token's policy loss by min(r, cap), with r
the ratio of trainer to sampler held constant (Yao et al., "Your efficient RL framework
secretly brings you off-policy RL training", 2025). Masking takes a whole trajectory
out of the loss when the geometric mean of its ratios leaves an interval.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from podium.types.v1 import spec_pb2
from torch import Tensor


def truncated(mismatch: Float[Tensor, "K"], cap: float) -> Float[Tensor, "K"]:
    """Factors from log-ratios of trainer to sampler."""
    return torch.exp(mismatch.detach()).clamp(max=cap)


def kept(sequence_mean: Float[Tensor, "K"], loss: spec_pb2.LossSpec) -> Bool[Tensor, "K"]:
    """Whether the token's trajectory stays, by the mean of its log-ratios."""
    ratio = torch.exp(sequence_mean)
    keep = torch.ones_like(ratio, dtype=torch.bool)
    if loss.HasField("sequence_ratio_min"):
        keep &= ratio >= loss.sequence_ratio_min
    if loss.HasField("sequence_ratio_max"):
        keep &= ratio <= loss.sequence_ratio_max
    return keep
