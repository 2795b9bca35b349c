"""PPO's clipped surrogate.

    loss = -min(r A, clip(r, 1 - epsilon, 1 + epsilon_high) A)

arXiv 1707.06347, equation 7, with GRPO's advantages (arXiv 2402.03300) and DAPO's
separate upper clip (arXiv 2503.14476).
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def loss(
    ratio: Float[Tensor, "K"], advantages: Float[Tensor, "K"], epsilon: float, epsilon_high: float
) -> Float[Tensor, "K"]:
    """The policy losses."""
    bounded = ratio.clamp(1 - epsilon, 1 + epsilon_high)
    return -torch.minimum(ratio * advantages, bounded * advantages)


def is_clipped(
    ratio: Float[Tensor, "K"], advantages: Float[Tensor, "K"], epsilon: float, epsilon_high: float
) -> Bool[Tensor, "K"]:
    """Where the clip is what counts, so that the policy loss has no gradient."""
    return ((advantages > 0) & (ratio > 1 + epsilon_high)) | (
        (advantages < 0) & (ratio < 1 - epsilon)
    )
