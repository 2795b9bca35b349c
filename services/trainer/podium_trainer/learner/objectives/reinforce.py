"""REINFORCE with a baseline.

    loss = -A log p

Williams, 1992; the baseline is the group's mean. With KL estimator k1 in the loss and
token aggregation it is the tutorial's loss, -mean(A log p) + beta mean(log p - log q).
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def loss(logprobs: Float[Tensor, "K"], advantages: Float[Tensor, "K"]) -> Float[Tensor, "K"]:
    """The policy losses."""
    return -advantages * logprobs
