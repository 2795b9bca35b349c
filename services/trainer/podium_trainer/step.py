"""One optimizer step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from podium.core.errors import RequestCancelledError
from podium.types.v1 import spec_pb2

from podium_trainer.batch import Batch
from podium_trainer.model import Policy
from podium_trainer.objective import token_losses
from podium_trainer.optimizer import Optimizer
from podium_trainer.packing import Row, pack
from podium_trainer.statistics import Statistics


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
) -> dict[str, float]:
    """Adds up the gradient of the batch's loss, one row at a time; applies nothing.

    Returns:
        The step's metrics.

    Raises:
        RequestCancelledError: `cancelled` said so; the gradient is forgotten.
    """
    with phases.measure("pack"):
        rows = pack(batch.samples, _row_budget(batch, row_tokens, training.max_row_tokens))
    statistics = Statistics()
    try:
        for row in rows:
            if cancelled():
                raise RequestCancelledError("the step was cancelled; the weights are unchanged")
            _add_row(policy, row, training.loss, statistics, phases)
    except BaseException:
        policy.masters.discard_gradients()
        raise
    return {
        **statistics.means(),
        "tokens_trained": statistics.tokens,
        "tokens_packed": sum(len(row.tokens) for row in rows),
        "tokens_flat": sum(len(item.sample.context) for item in batch.samples),
        "rows": len(rows),
        "trajectories_trained": batch.trajectories,
    }


def apply_gradient(
    policy: Policy, optimizer: Optimizer, *, learning_rate: float, phases: Phases
) -> float:
    """Clips the gradient and moves the weights; returns the norm before clipping.

    Raises:
        InternalError: the gradient is not finite; the weights are unchanged.
    """
    with phases.measure("optimizer"):
        try:
            norm = optimizer.clip()
            optimizer.step(learning_rate)
            policy.masters.publish()
        finally:
            policy.masters.discard_gradients()
    return norm


def _row_budget(batch: Batch, row_tokens: int, max_row_tokens: int) -> int:
    # Memory grows with the row, so rows are as small as this machine likes them, unless a
    # sample alone needs more.
    longest = max(len(item.sample.context) for item in batch.samples)
    return min(max_row_tokens, max(row_tokens, longest))


def _add_row(
    policy: Policy,
    row: Row,
    loss: spec_pb2.LossSpec,
    statistics: Statistics,
    phases: Phases,
) -> None:
    sampler = torch.from_numpy(row.logprobs)
    advantages = torch.from_numpy(row.advantages)
    reference = None
    if loss.kl_coefficient:
        with phases.measure("reference"):
            reference = policy.reference_logprobs(row)
    with phases.measure("forward"):
        now = policy.evaluate(row)
        losses = token_losses(now.logprobs, sampler, advantages, reference, loss)
        total = (losses * torch.from_numpy(row.weights)).sum()
    with phases.measure("backward"):
        total.backward()
        policy.masters.collect()
    statistics.loss += float(total.detach())
    statistics.add(now.logprobs, now.entropy, sampler, advantages, reference, loss)
