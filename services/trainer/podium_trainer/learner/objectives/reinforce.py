"""REINFORCE with a baseline.

    loss = -A log p

Williams, 1992; the baseline is the group's mean. With KL estimator k1 in the loss and
token aggregation it is the tutorial's loss, -mean(A log p) + beta mean(log p - log q).
"""

from __future__ import annotations

import torch


def loss(logprobs: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    """[K] policy losses."""
    return -advantages * logprobs
