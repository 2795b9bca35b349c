"""What a trained token weighs in the loss of its optimizer batch."""

from __future__ import annotations

from podium.types.v1 import spec_pb2


def token_weight(loss: spec_pb2.LossSpec, *, trajectories: int, tokens: int, own: int) -> float:
    """The weight of a token; the loss is the weighted sum of token losses.

    Args:
        trajectories: of the optimizer batch.
        tokens: trained ones of the optimizer batch.
        own: trained ones of the token's trajectory, over all its histories.
    """
    if loss.aggregation == spec_pb2.AGGREGATION_KIND_SEQUENCE:
        return 1 / (trajectories * own)
    if loss.aggregation == spec_pb2.AGGREGATION_KIND_CONSTANT:
        return 1 / (trajectories * loss.aggregation_tokens)
    return 1 / tokens
