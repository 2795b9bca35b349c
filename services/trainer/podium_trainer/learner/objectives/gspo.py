"""GSPO: one importance ratio a trajectory.

    s = exp(mean of log r over the trajectory's trained tokens)
    loss = the clipped surrogate of s

arXiv 2507.18071, equations 5 to 7; the ratio is written as in its GSPO-token form
(equation 13), whose value and gradient are the same where a trajectory's tokens have
one advantage and one weight; with advantages of turns it is GSPO-token.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def ratio(log_ratio: Float[Tensor, "K"], sequence_mean: Float[Tensor, "K"]) -> Float[Tensor, "K"]:
    """The trajectory's ratio, each token carrying its own share of the gradient."""
    return torch.exp(sequence_mean.detach() + log_ratio - log_ratio.detach())
