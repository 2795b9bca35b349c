"""The gradient of a mini-batch's loss, row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from podium.core.errors import RequestCancelledError
from podium.types.v1 import spec_pb2

from podium_trainer.domain.batch import Batch
from podium_trainer.domain.packing import Row
from podium_trainer.learner.model import Evaluation, Policy
from podium_trainer.learner.objectives import (
    BatchValues,
    Tokens,
    baselines,
    needs_kl_mean,
    needs_sequences,
    token_losses,
)
from podium_trainer.learner.objectives.kl import estimate
from podium_trainer.learner.objectives.ratios import log_ratio
from podium_trainer.learner.parallel import Ranks
from podium_trainer.learner.phases import Phases
from podium_trainer.learner.statistics import Statistics


@dataclass
class MiniBatchPart:
    """A mini-batch, and what its updates share."""

    batch: Batch
    rows: Sequence[Row]
    """Of all processes."""
    mine: Sequence[tuple[Row, bool]]
    """Of this process, and whether each counts."""
    references: list[torch.Tensor | None]
    """[K] by row of `mine`, under the reference; None until it was asked."""
    starts: list[torch.Tensor | None]
    """[K] by row of `mine`, under the policy before the step; None where it is not needed."""

    @classmethod
    def of(cls, batch: Batch, rows: Sequence[Row], ranks: Ranks) -> MiniBatchPart:
        """Of packed rows, dealt out."""
        mine = ranks.deal(rows)
        return cls(batch, rows, mine, [None] * len(mine), [None] * len(mine))


def go_on(cancelled: Callable[[], bool]) -> None:
    """Returns unless the step was cancelled.

    Raises:
        RequestCancelledError: it was.
    """
    if cancelled():
        raise RequestCancelledError("the step was cancelled; nothing of it is kept")


class Gradients:
    """Gradients of the parts of one step, under weights that move between them."""

    def __init__(
        self,
        policy: Policy,
        parts: Sequence[MiniBatchPart],
        loss: spec_pb2.LossSpec,
        *,
        cancelled: Callable[[], bool],
        phases: Phases,
        ranks: Ranks,
    ) -> None:
        self._policy = policy
        self._parts = parts
        self._loss = loss
        self._cancelled = cancelled
        self._phases = phases
        self._ranks = ranks
        self._kl_mean: float | None = None
        self._keeps_start = False

    def begin(self, first: int) -> None:
        """Keeps what the policy before the step says, for a step of several updates.

        The update of part `first` comes next and evaluates it itself.

        Raises:
            RequestCancelledError: the step was cancelled.
        """
        # Supervised losses have no ratio.
        self._keeps_start = self._loss.objective != spec_pb2.OBJECTIVE_SUPERVISED
        every = needs_kl_mean(self._loss)
        kl = 0.0
        with self._stoppable(), self._phases.measure("old_policy"):
            for number, part in enumerate(self._parts):
                if self._keeps_start and (every or number != first):
                    kl += float(self._look(part)[-1])
        if every:
            self._kl_mean = kl / sum(part.batch.trained_tokens for part in self._parts)

    def add(self, number: int) -> Statistics:
        """Adds up the gradient of a part's loss, one row at a time; applies nothing.

        Raises:
            RequestCancelledError: the step was cancelled; the gradient is forgotten.
        """
        part, loss = self._parts[number], self._loss
        statistics = Statistics()
        try:
            with self._stoppable():
                values = self._values(part)
                for place, (row, counts) in enumerate(part.mine):
                    self._ask()
                    if loss.kl_coefficient and part.references[place] is None:
                        with self._phases.measure("reference"):
                            part.references[place] = self._policy.reference_logprobs(row)
                    self._add_row(part, place, row, counts, values, statistics)
                statistics.join(self._ranks)
        except BaseException:
            self._policy.masters.discard_gradients()
            raise
        return statistics

    def _ask(self) -> None:
        go_on(self._cancelled)

    def _stoppable(self) -> AbstractContextManager[None]:
        # A row may take many seconds. Processes in step can only stop together, between rows.
        return nullcontext() if self._ranks.sharded else self._policy.interrupted(self._ask)

    def _values(self, part: MiniBatchPart) -> BatchValues:
        """The means that no row alone holds."""
        unknown_kl = needs_kl_mean(self._loss) and self._kl_mean is None
        if not (unknown_kl or _splits(part, self._loss)):
            return BatchValues(kl_mean=self._kl_mean or 0.0)
        with self._phases.measure("batch_values"):
            sums = self._look(part)
        lengths = torch.from_numpy(part.batch.tokens_by_trajectory())
        ratios, mismatches = (sums[:-1].view(2, -1) / lengths).float().to(self._ranks.device)
        kl = self._kl_mean
        return BatchValues(
            ratios, mismatches, float(sums[-1]) / part.batch.trained_tokens if kl is None else kl
        )

    @torch.no_grad()
    def _look(self, part: MiniBatchPart) -> torch.Tensor:
        """A forward pass of a part, which keeps what `begin` and the KL's mean need.

        Returns:
            [2 N + 1] float64 sums over all processes: by trajectory the log-ratios to the old
            policy and those of trainer to sampler, and the KL.
        """
        loss, trajectories = self._loss, part.batch.trajectories
        sums = torch.zeros(2 * trajectories + 1, dtype=torch.float64)
        for place, (row, counts) in enumerate(part.mine):
            self._ask()
            now = self._policy.evaluate(row)
            start = part.starts[place]
            if start is None and self._keeps_start:
                start = part.starts[place] = now.logprobs
            reference = part.references[place]
            if reference is None and needs_kl_mean(loss):
                reference = part.references[place] = self._policy.reference_logprobs(row)
            if not counts:
                continue
            tokens, _ = trained_tokens(row, now, reference, start)
            base = baselines(tokens, loss)
            ratio = log_ratio(now.logprobs, base.old)
            index = torch.from_numpy(row.trajectories)
            sums[:trajectories].index_add_(0, index, ratio.double().cpu())
            sums[trajectories:-1].index_add_(0, index, base.mismatch.double().cpu())
            if reference is not None:
                kl = estimate(now.logprobs, reference, loss.kl_estimator)
                sums[-1] += float(kl.double().sum())
        return self._ranks.add(sums)

    def _add_row(
        self,
        part: MiniBatchPart,
        place: int,
        row: Row,
        counts: bool,
        values: BatchValues,
        statistics: Statistics,
    ) -> None:
        with self._phases.measure("forward"):
            now = self._policy.evaluate(row)
            if self._keeps_start and part.starts[place] is None:
                part.starts[place] = now.logprobs.detach()
            tokens, weights = trained_tokens(row, now, part.references[place], part.starts[place])
            losses = token_losses(tokens, self._loss, values)
            total = (losses.total * weights).sum()
        with self._phases.measure("backward"):
            # Sharded gradients are averaged over processes; the loss is a sum over the batch.
            (total * (self._ranks.size if counts else 0)).backward()
            self._policy.masters.collect()
        statistics.add(losses, now.entropy, tokens.advantages, weights, counts=counts)


def _splits(part: MiniBatchPart, loss: spec_pb2.LossSpec) -> bool:
    """Whether a loss by trajectory meets a trajectory whose histories lie in several rows."""
    if not needs_sequences(loss):
        return False
    totals = part.batch.tokens_by_trajectory()
    for row in part.rows:
        found, counts = np.unique(row.trajectories, return_counts=True)
        if (totals[found] != counts).any():
            return True
    return False


def trained_tokens(
    row: Row,
    now: Evaluation,
    reference: torch.Tensor | None,
    start: torch.Tensor | None = None,
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
        start=start,
    )
    return tokens, on(row.weights)
