"""The loss of every trained token, joined from objective, KL and mismatch correction."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from podium.types.v1 import spec_pb2
from torch import Tensor

from podium_trainer.learner.objectives import (
    cispo,
    clipped,
    distillation,
    gspo,
    kl,
    mismatch,
    reinforce,
    supervised,
)
from podium_trainer.learner.objectives.ratios import (
    at_level,
    log_ratio,
    sampler_or,
    trajectory_means,
)


@dataclass(frozen=True)
class Tokens:
    """K trained tokens of a row."""

    logprobs: Float[Tensor, "K"]
    """Under the policy, with gradient."""
    sampler: Float[Tensor, "K"]
    """Under the policy that sampled; NaN where nobody recorded it."""
    advantages: Float[Tensor, "K"]
    trajectories: Int[Tensor, "K"]
    """Index of the trajectory in the batch."""
    reference: Float[Tensor, "K"] | None = None
    """Under the reference; needed when `kl_coefficient` is not 0."""
    teacher: Float[Tensor, "K"] | None = None
    """Under the teacher, NaN where it was not asked; needed when `teacher_coefficient` is not 0."""
    start: Float[Tensor, "K"] | None = None
    """Under the policy before the step; None when that is the one of `logprobs`."""


@dataclass(frozen=True)
class BatchValues:
    """Means over the whole batch, where a row alone does not hold what they are of."""

    log_ratio_means: Float[Tensor, "N"] | None = None
    """By trajectory, policy to old policy; None when every trajectory is in one row."""
    mismatch_means: Float[Tensor, "N"] | None = None
    """By trajectory, trainer to sampler before the step; None as above."""
    kl_mean: float = 0.0
    """Over all trained tokens of the step; for the KL in the advantage."""


@dataclass(frozen=True)
class TokenLosses:
    """What the loss is made of, by trained token."""

    total: Float[Tensor, "K"]
    """With gradient; not yet weighted."""
    policy: Float[Tensor, "K"]
    kl: Float[Tensor, "K"] | None
    """The estimate, before its coefficient."""
    ratio: Float[Tensor, "K"]
    clipped: Bool[Tensor, "K"] | None
    """Where a bound took the place of the ratio; None for objectives without a clip."""
    kept: Bool[Tensor, "K"]
    """False where the sequence mask takes the token out of the loss."""
    mismatch: Float[Tensor, "K"]
    """Log-ratio of trainer to sampler before the step, bounded; 0 where nobody recorded the
    sampler's."""
    missing: Bool[Tensor, "K"]
    """Where nobody recorded it, so that the ratio is to the policy before the step."""
    moved: Float[Tensor, "K"] | None = None
    """Log-ratio of the policy to that before the step, bounded; None when it is the same."""


@dataclass(frozen=True)
class Baselines:
    """What a row's trained tokens are compared with: log-probs without gradient."""

    start: Float[Tensor, "K"]
    """Under the policy before the step."""
    sampler: Float[Tensor, "K"]
    """Under the policy that sampled; where nobody recorded it, before the step."""
    old: Float[Tensor, "K"]
    """Under the policy that the ratio is to."""

    @property
    def mismatch(self) -> Float[Tensor, "K"]:
        """Log-ratio of trainer to sampler before the step."""
        return log_ratio(self.start, self.sampler)


def needs_sequences(loss: spec_pb2.LossSpec) -> bool:
    """Whether a token's loss depends on its trajectory's other tokens."""
    return (
        loss.objective == spec_pb2.OBJECTIVE_GSPO
        or loss.ratio_level != spec_pb2.RATIO_LEVEL_TOKEN
        or loss.HasField("sequence_ratio_min")
        or loss.HasField("sequence_ratio_max")
    )


def needs_kl_mean(loss: spec_pb2.LossSpec) -> bool:
    """Whether a token's loss depends on the batch's mean KL."""
    return bool(loss.kl_coefficient) and loss.kl_placement == spec_pb2.KL_PLACEMENT_ADVANTAGE


def token_losses(
    tokens: Tokens, loss: spec_pb2.LossSpec, values: BatchValues | None = None
) -> TokenLosses:
    """The losses of a row's trained tokens.

    `loss` has its defaults filled and contradicts nothing (`podium.core.contract`).
    """
    values = values or BatchValues()
    now, base = tokens.logprobs.detach(), baselines(tokens, loss)
    off = base.mismatch
    sequence, drift = torch.zeros_like(off), torch.zeros_like(off)
    if needs_sequences(loss):
        sequence = (
            trajectory_means(log_ratio(now, base.old), tokens.trajectories)
            if values.log_ratio_means is None
            else values.log_ratio_means[tokens.trajectories]
        )
        drift = (
            trajectory_means(off, tokens.trajectories)
            if values.mismatch_means is None
            else values.mismatch_means[tokens.trajectories]
        )
    if tokens.teacher is not None and loss.teacher_coefficient:
        taught = loss.teacher_coefficient * distillation.advantages(base.start, tokens.teacher)
        tokens = replace(tokens, advantages=tokens.advantages + taught)
    estimate = None
    if tokens.reference is not None and loss.kl_coefficient:
        estimate = kl.estimate(tokens.logprobs, tokens.reference, loss.kl_estimator)
        if needs_kl_mean(loss):
            # ART's shaping, with the mean over the batch instead of the row.
            before = kl.estimate(base.start, tokens.reference, loss.kl_estimator)
            shaped = loss.kl_coefficient * (before - values.kl_mean)
            tokens = replace(tokens, advantages=tokens.advantages - shaped)
    policy, ratio, bounded = _policy(tokens, base.old, sequence, loss)
    if loss.HasField("importance_cap"):
        # A ratio to the trainer's own old policy has in it what moved since; no ratio has not.
        far = log_ratio(now, base.sampler) if bounded is None else off
        policy = policy * mismatch.truncated(far, loss.importance_cap)
    total = policy
    if estimate is not None and not needs_kl_mean(loss):
        added = estimate
        if loss.kl_importance_weighted:
            added = added * torch.exp(log_ratio(tokens.logprobs, base.sampler))
        total = total + loss.kl_coefficient * added
    kept = mismatch.kept(drift, loss)
    return TokenLosses(
        # Not a product: infinity times 0 is no number.
        total=torch.where(kept, total, torch.zeros_like(total)),
        policy=policy,
        kl=estimate,
        ratio=ratio,
        clipped=bounded,
        kept=kept,
        mismatch=off,
        missing=torch.isnan(tokens.sampler),
        moved=None if tokens.start is None else log_ratio(now, base.start),
    )


def baselines(tokens: Tokens, loss: spec_pb2.LossSpec) -> Baselines:
    """What the tokens of a row are compared with."""
    start = tokens.logprobs.detach() if tokens.start is None else tokens.start
    sampler = sampler_or(tokens.sampler, start)
    by_trainer = loss.old_policy == spec_pb2.OLD_POLICY_TRAINER
    return Baselines(start, sampler, start if by_trainer else sampler)


def _policy(
    tokens: Tokens,
    old: Float[Tensor, "K"],
    sequence: Float[Tensor, "K"],
    loss: spec_pb2.LossSpec,
) -> tuple[Float[Tensor, "K"], Float[Tensor, "K"], Bool[Tensor, "K"] | None]:
    """Policy losses, the ratios in them, and where they are clipped."""
    logprobs, advantages = tokens.logprobs, tokens.advantages
    if loss.objective == spec_pb2.OBJECTIVE_SUPERVISED:
        return supervised.loss(logprobs), torch.ones_like(logprobs), None
    if loss.objective == spec_pb2.OBJECTIVE_REINFORCE:
        return reinforce.loss(logprobs, advantages), torch.ones_like(logprobs), None
    logs = log_ratio(logprobs, old)
    clip = (loss.epsilon, loss.epsilon_high)
    if loss.objective == spec_pb2.OBJECTIVE_CISPO:
        ratio = at_level(torch.exp(logs), torch.exp(sequence), loss.ratio_level)
        return (
            cispo.loss(logprobs, ratio, advantages, *clip),
            ratio,
            cispo.is_clipped(ratio, *clip),
        )
    by_sequence = loss.objective == spec_pb2.OBJECTIVE_GSPO
    ratio = gspo.ratio(logs, sequence) if by_sequence else torch.exp(logs)
    return (
        clipped.loss(ratio, advantages, *clip),
        ratio,
        clipped.is_clipped(ratio, advantages, *clip),
    )
