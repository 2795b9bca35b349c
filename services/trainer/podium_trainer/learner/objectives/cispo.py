"""CISPO: every token keeps its gradient, and the clip bounds its weight.

    loss = -clip(r, 1 - epsilon, 1 + epsilon_high) A log p, with r held constant

MiniMax-M1, arXiv 2506.13585, equation 4. With epsilon 1 and epsilon_high 4, ART's
defaults, the weight lies in 0 to 5.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor


def loss(
    logprobs: Float[Tensor, "K"],
    ratio: Float[Tensor, "K"],
    advantages: Float[Tensor, "K"],
    epsilon: float,
    epsilon_high: float,
) -> Float[Tensor, "K"]:
    """The policy losses; `ratio` gets no gradient."""
    return -ratio.detach().clamp(1 - epsilon, 1 + epsilon_high) * advantages * logprobs


def is_clipped(ratio: Float[Tensor, "K"], epsilon: float, epsilon_high: float) -> Bool[Tensor, "K"]:
    """Where the weight is the bound and not the ratio."""
    return (ratio < 1 - epsilon) | (ratio > 1 + epsilon_high)
