"""Estimators of KL(policy || reference) from tokens of the policy.

Schulman, "Approximating KL divergence" (2020), with d = log p - log q:

- k1 = d: unbiased value; as a loss its expected gradient on-policy is 0.
- k2 = d^2 / 2: biased value; its expected gradient on-policy is the KL's.
- k3 = exp(-d) - 1 + d: unbiased value, never negative; its expected gradient on-policy
  is that of KL(reference || policy).
- k3+: the value of k3 with the gradient of k2.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from podium.types.v1 import spec_pb2
from torch import Tensor

from podium_trainer.learner.objectives.ratios import LOG_RATIO_BOUND


def estimate(
    logprobs: Float[Tensor, "K"],
    reference: Float[Tensor, "K"],
    estimator: spec_pb2.KlEstimator.ValueType,
) -> Float[Tensor, "K"]:
    """Estimates, nats."""
    difference = logprobs - reference
    if estimator == spec_pb2.KL_ESTIMATOR_K1:
        return difference
    if estimator == spec_pb2.KL_ESTIMATOR_K2:
        return difference.square() / 2
    if estimator == spec_pb2.KL_ESTIMATOR_K3_PLUS:
        gradient = difference.square() / 2
        return _k3(difference.detach()) + gradient - gradient.detach()
    return _k3(difference)


def _k3(difference: Float[Tensor, "K"]) -> Float[Tensor, "K"]:
    # Beyond the bound the exponential goes on as its tangent: finite, and still pulling the
    # right way.
    bounded = (-difference).clamp(max=LOG_RATIO_BOUND)
    beyond = (-difference - LOG_RATIO_BOUND).clamp(min=0)
    return torch.exp(bounded) + beyond * math.exp(LOG_RATIO_BOUND) - 1 + difference
