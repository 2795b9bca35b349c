"""The clipped GRPO objective, token by token.

With r = log p(token) - log p_sampler(token) and ratio = exp(r):

    loss = -min(ratio A, clip(ratio, 1 - epsilon, 1 + epsilon_high) A) + beta kl

PPO's clipped surrogate (arXiv 1707.06347, equation 7) with GRPO's advantages
(arXiv 2402.03300) and DAPO's upper clip (arXiv 2503.14476). The sampler's own
log-probs are the denominator: there is no second "old policy" pass.
"""

from __future__ import annotations

import torch
from podium.types.v1 import spec_pb2

LOG_RATIO_BOUND = 20.0
"""Nats: beyond it the ratio is constant, so a token that the sampler cannot have drawn
from anything near this policy has a finite loss and no gradient."""


def log_ratio(logprobs: torch.Tensor, sampler: torch.Tensor) -> torch.Tensor:
    """[K] log p - log p_sampler, within the bound."""
    return (logprobs - sampler).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def clipped(
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


def kl_divergence(
    logprobs: torch.Tensor, reference: torch.Tensor, estimator: spec_pb2.KlEstimator.ValueType
) -> torch.Tensor:
    """[K] estimates of KL(policy || reference) from tokens of the policy.

    Schulman, "Approximating KL divergence" (2020), with d = log p - log q:

    - k1 = d: unbiased value; as a loss its expected gradient on-policy is 0.
    - k2 = d^2 / 2: biased value; its expected gradient on-policy is the KL's.
    - k3 = exp(-d) - 1 + d: unbiased value, never negative; its expected gradient
      on-policy is that of KL(reference || policy).

    k3's exponential goes on as its tangent beyond the log-ratio bound: finite, and
    still pulling the right way.
    """
    difference = logprobs - reference
    if estimator == spec_pb2.KL_ESTIMATOR_K1:
        return difference
    if estimator == spec_pb2.KL_ESTIMATOR_K2:
        return difference.square() / 2
    bounded = (-difference).clamp(max=LOG_RATIO_BOUND)
    beyond = (-difference - LOG_RATIO_BOUND).clamp(min=0)
    return torch.exp(bounded) + beyond * torch.exp(torch.tensor(LOG_RATIO_BOUND)) - 1 + difference


def token_losses(
    logprobs: torch.Tensor,
    sampler: torch.Tensor,
    advantages: torch.Tensor,
    reference: torch.Tensor | None,
    loss: spec_pb2.LossSpec,
) -> torch.Tensor:
    """[K] losses of trained tokens, not yet weighted.

    All arguments are [K] float32, log-probs in nats; `reference` is needed when
    `loss.kl_coefficient` is not 0. `loss` has its defaults filled.
    """
    ratio = torch.exp(log_ratio(logprobs, sampler))
    losses = clipped(ratio, advantages, loss.epsilon, loss.epsilon_high)
    if reference is not None and loss.kl_coefficient:
        kl = kl_divergence(logprobs, reference, loss.kl_estimator)
        losses = losses + loss.kl_coefficient * kl
    return losses
