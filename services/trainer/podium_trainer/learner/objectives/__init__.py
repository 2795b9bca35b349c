"""What moves the policy: a formula and its source in each module, and `loss` that joins them.

Everything is token by token, in float32 and nats. `K` in a shape is the trained tokens of a row,
`N` the trajectories of the batch. Weights and means over the step come from outside, so that rows
and micro-batches change nothing.
"""

from podium_trainer.learner.objectives.loss import (
    BatchValues,
    TokenLosses,
    Tokens,
    needs_kl_mean,
    needs_sequences,
    token_losses,
)

__all__ = [
    "BatchValues",
    "TokenLosses",
    "Tokens",
    "needs_kl_mean",
    "needs_sequences",
    "token_losses",
]
