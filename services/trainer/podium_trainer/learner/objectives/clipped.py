"""PPO's clipped surrogate.

    loss = -min(r A, clip(r, 1 - epsilon, 1 + epsilon_high) A)

arXiv 1707.06347, equation 7, with GRPO's advantages (arXiv 2402.03300) and DAPO's
separate upper clip (arXiv 2503.14476).
"""

from __future__ import annotations

import torch


def loss(
    ratio: torch.Tensor, advantages: torch.Tensor, epsilon: float, epsilon_high: float
) -> torch.Tensor:
    """[K] policy losses."""
    bounded = ratio.clamp(1 - epsilon, 1 + epsilon_high)
    return -torch.minimum(ratio * advantages, bounded * advantages)


def is_clipped(
    ratio: torch.Tensor, advantages: torch.Tensor, epsilon: float, epsilon_high: float
) -> torch.Tensor:
    """[K] where the clip is what counts, so that the policy loss has no gradient."""
    return ((advantages > 0) & (ratio > 1 + epsilon_high)) | (
        (advantages < 0) & (ratio < 1 - epsilon)
    )
