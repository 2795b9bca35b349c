"""Supervised fine-tuning: the cross-entropy of the sampled tokens, -log p."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def loss(logprobs: Float[Tensor, "K"]) -> Float[Tensor, "K"]:
    """The losses."""
    return -logprobs
