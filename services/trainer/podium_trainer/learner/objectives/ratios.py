"""Importance ratios, bounded, and their means over trajectories."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from podium.types.v1 import spec_pb2
from torch import Tensor

LOG_RATIO_BOUND = 20.0
"""Nats: beyond it the ratio is constant, so a token that the sampler cannot have drawn
from anything near this policy has a finite loss and no gradient."""


def log_ratio(logprobs: Float[Tensor, "K"], old: Float[Tensor, "K"]) -> Float[Tensor, "K"]:
    """log p - log p_old, within the bound."""
    return (logprobs - old).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def sampler_or(sampler: Float[Tensor, "K"], start: Float[Tensor, "K"]) -> Float[Tensor, "K"]:
    """The sampler's log-probs; where nobody recorded one (NaN), those before the step."""
    return torch.where(torch.isnan(sampler), start, sampler)


def trajectory_means(
    values: Float[Tensor, "K"], trajectories: Int[Tensor, "K"]
) -> Float[Tensor, "K"]:
    """The mean of `values` over the tokens of each token's trajectory."""
    _, index = torch.unique(trajectories, return_inverse=True)
    counts = torch.bincount(index).to(values.dtype)
    sums = torch.zeros_like(counts).index_add_(0, index, values)
    return (sums / counts)[index]


def at_level(
    ratio: Float[Tensor, "K"], sequence: Float[Tensor, "K"], level: spec_pb2.RatioLevel.ValueType
) -> Float[Tensor, "K"]:
    """Token ratio and trajectory ratio joined as ART joins them."""
    if level == spec_pb2.RATIO_LEVEL_SEQUENCE:
        return sequence
    if level == spec_pb2.RATIO_LEVEL_AVERAGE:
        return (ratio + sequence) / 2
    if level == spec_pb2.RATIO_LEVEL_GEOMETRIC_AVERAGE:
        return (ratio * sequence).sqrt()
    return ratio
