"""One optimizer step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np
import torch
from podium.core.errors import RequestCancelledError
from podium.types.v1 import spec_pb2

from podium_trainer.domain.batch import Batch, row_budget
from podium_trainer.domain.packing import Row, pack
from podium_trainer.learner.model import Evaluation, Policy
from podium_trainer.learner.objectives import (
    BatchValues,
    Tokens,
    needs_kl_mean,
    needs_sequences,
    token_losses,
)
from podium_trainer.learner.objectives.kl import estimate
from podium_trainer.learner.objectives.ratios import log_ratio, sampler_or_now
from podium_trainer.learner.optimizer import Optimizer
from podium_trainer.learner.parallel import Ranks
from podium_trainer.learner.statistics import Statistics

Dealt = Sequence[tuple[Row, bool]]
"""Rows of this process, and whether each counts."""


class Phases:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Adds the time inside to phase `name`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def accumulate_gradient(
    policy: Policy,
    batch: Batch,
    training: spec_pb2.TrainingSpec,
    *,
    row_tokens: int,
    cancelled: Callable[[], bool],
    phases: Phases,
    ranks: Ranks | None = None,
) -> dict[str, float]:
    """Adds up the gradient of the batch's loss, one row at a time; applies nothing.

    Returns:
        The step's metrics.

    Raises:
        RequestCancelledError: `cancelled` said so; the gradient is forgotten.
    """
    ranks = ranks or Ranks()
    with phases.measure("pack"):
        rows = pack(batch.samples, row_budget(batch, row_tokens, training))
        mine = ranks.deal(rows)
    statistics = Statistics()

    def ask() -> None:
        if cancelled():
            raise RequestCancelledError("the step was cancelled; the weights are unchanged")

    # A row may take many seconds. Processes in step can only stop together, between rows.
    within = nullcontext() if ranks.sharded else policy.interrupted(ask)
    try:
        with within:
            values = BatchValues()
            references: list[torch.Tensor | None] = [None] * len(mine)
            if needs_kl_mean(training.loss) or _splits(rows, batch, training.loss):
                with phases.measure("batch_values"):
                    values, references = _batch_values(policy, mine, batch, training.loss, ranks)
            for (row, counts), reference in zip(mine, references, strict=True):
                ask()
                if training.loss.kl_coefficient and reference is None:
                    with phases.measure("reference"):
                        reference = policy.reference_logprobs(row)
                _add_row(
                    policy,
                    row,
                    counts,
                    reference,
                    training.loss,
                    values,
                    statistics,
                    phases,
                    ranks.size,
                )
            statistics.join(ranks)
    except BaseException:
        policy.masters.discard_gradients()
        raise
    return {
        **statistics.means(),
        "tokens_packed": sum(len(row.tokens) for row in rows),
        "tokens_flat": sum(len(item.sample.context) for item in batch.samples),
        "rows": len(rows),
        "trajectories_trained": batch.trajectories,
        "zero_variance_groups": batch.zero_variance_groups,
        **batch.turn_metrics(),
    }


def apply_gradient(
    policy: Policy, optimizer: Optimizer, *, learning_rate: float, phases: Phases
) -> float:
    """Clips the gradient and moves the weights; returns the norm before clipping.

    Raises:
        FailedPreconditionError: the gradient is not finite; the weights are unchanged.
    """
    with phases.measure("optimizer"):
        try:
            norm = optimizer.clip()
            optimizer.step(learning_rate)
            policy.masters.publish()
        finally:
            policy.masters.discard_gradients()
    return norm


def _splits(rows: Sequence[Row], batch: Batch, loss: spec_pb2.LossSpec) -> bool:
    """Whether a loss by trajectory meets a trajectory whose histories lie in several rows."""
    if not needs_sequences(loss):
        return False
    totals = batch.tokens_by_trajectory()
    for row in rows:
        found, counts = np.unique(row.trajectories, return_counts=True)
        if (totals[found] != counts).any():
            return True
    return False


@torch.no_grad()
def _batch_values(
    policy: Policy, mine: Dealt, batch: Batch, loss: spec_pb2.LossSpec, ranks: Ranks
) -> tuple[BatchValues, list[torch.Tensor | None]]:
    """A forward pass of everything, for means that no row alone holds.

    Also returns each row's reference log-probs, where the means needed them.
    """
    references: list[torch.Tensor | None] = []
    sums = torch.zeros(batch.trajectories + 1, dtype=torch.float64)
    for row, counts in mine:
        now = policy.evaluate(row).logprobs
        reference = policy.reference_logprobs(row) if needs_kl_mean(loss) else None
        references.append(reference)
        if not counts:
            continue
        sampler = torch.from_numpy(row.logprobs).to(now.device)
        off = log_ratio(now, sampler_or_now(sampler, now))
        sums[:-1].index_add_(0, torch.from_numpy(row.trajectories), off.double().cpu())
        if reference is not None:
            sums[-1] += float(estimate(now, reference, loss.kl_estimator).double().sum())
    sums = ranks.add(sums)
    lengths = torch.from_numpy(batch.tokens_by_trajectory())
    means = (sums[:-1] / lengths).float().to(ranks.device)
    return BatchValues(means, float(sums[-1]) / batch.trained_tokens), references


def _add_row(
    policy: Policy,
    row: Row,
    counts: bool,
    reference: torch.Tensor | None,
    loss: spec_pb2.LossSpec,
    values: BatchValues,
    statistics: Statistics,
    phases: Phases,
    size: int,
) -> None:
    with phases.measure("forward"):
        now = policy.evaluate(row)
        tokens, weights = trained_tokens(row, now, reference)
        losses = token_losses(tokens, loss, values)
        total = (losses.total * weights).sum()
    with phases.measure("backward"):
        # Sharded gradients are averaged over processes; the loss is a sum over the batch.
        (total * (size if counts else 0)).backward()
        policy.masters.collect()
    statistics.add(losses, now.entropy, tokens.advantages, weights, counts=counts)


def trained_tokens(
    row: Row, now: Evaluation, reference: torch.Tensor | None
) -> tuple[Tokens, torch.Tensor]:
    """The row's trained tokens and their weights."""
    device = now.logprobs.device

    def on(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    tokens = Tokens(
        logprobs=now.logprobs,
        sampler=on(row.logprobs),
        advantages=on(row.advantages),
        trajectories=on(row.trajectories),
        reference=reference,
        teacher=on(row.teacher),
    )
    return tokens, on(row.weights)
