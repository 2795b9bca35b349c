"""Supervised fine-tuning: the cross-entropy of the sampled tokens, -log p."""

from __future__ import annotations

import torch


def loss(logprobs: torch.Tensor) -> torch.Tensor:
    """[K] losses."""
    return -logprobs
