"""On-policy distillation: the advantage of a token is how much rather the teacher says it.

    A = log p_teacher - log p, with log p held constant

Its mean over the policy's own samples is the negative reverse KL, KL(policy || teacher), and the
policy gradient with it is that KL's (Agarwal et al., "On-policy distillation of language models",
arXiv 2306.13649, section 3; K. Lu, "On-Policy Distillation", Thinking Machines, 2025). A token
that was sampled from an older policy is weighted by the objective's ratio, as any other.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from podium_trainer.learner.objectives.ratios import log_ratio


def advantages(logprobs: Float[Tensor, "K"], teacher: Float[Tensor, "K"]) -> Float[Tensor, "K"]:
    """In nats, within `LOG_RATIO_BOUND`; 0 where the teacher was not asked (NaN)."""
    now = logprobs.detach()
    return log_ratio(torch.where(torch.isnan(teacher), now, teacher), now)
