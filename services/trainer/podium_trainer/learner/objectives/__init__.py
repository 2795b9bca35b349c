"""What moves the policy: a formula and its source in each module, and `loss` that joins them.

Everything is token by token, in float32 and nats. `K` in a shape is the trained tokens of a row,
`N` the trajectories of the batch. Weights and means over the batch come from outside, so that rows
change nothing. Where a step has several updates, masks, corrections and advantages are those of the
policy before the step in all of them: the ratio and the KL in the loss alone move.
"""

from podium_trainer.learner.objectives.loss import (
    BatchValues,
    TokenLosses,
    Tokens,
    baselines,
    needs_kl_mean,
    needs_sequences,
    token_losses,
)

__all__ = [
    "BatchValues",
    "TokenLosses",
    "Tokens",
    "baselines",
    "needs_kl_mean",
    "needs_sequences",
    "token_losses",
]
