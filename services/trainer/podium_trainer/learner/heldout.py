"""The loss on rows that are held out."""

from __future__ import annotations

import torch
from podium.types.v1 import spec_pb2

from podium_trainer.domain.batch import Batch, row_budget
from podium_trainer.domain.packing import pack
from podium_trainer.learner.model import Policy
from podium_trainer.learner.parallel import Ranks


@torch.no_grad()
def mean_loss(
    policy: Policy,
    batch: Batch,
    training: spec_pb2.TrainingSpec,
    *,
    row_tokens: int,
    ranks: Ranks,
) -> float:
    """-log p of the batch's trained tokens in nats, averaged as `training` aggregates the loss.

    Every process must ask. The batch must hold a sample.
    """
    total = torch.zeros(1, dtype=torch.float64)
    for row, counts in ranks.deal(pack(batch.samples, row_budget(batch, row_tokens, training))):
        logprobs = policy.evaluate(row).logprobs
        if counts:
            weights = torch.from_numpy(row.weights).to(logprobs.device)
            total -= (logprobs * weights).double().sum().cpu()
    return float(ranks.add(total)[0])
