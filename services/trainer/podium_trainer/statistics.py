"""Numbers of a step, summed over its trained tokens whatever rows they were in."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from podium.types.v1 import spec_pb2

from podium_trainer.objective import is_clipped, kl_divergence, log_ratio


@dataclass
class Statistics:
    """Sums in double precision; `means` divides by the tokens of the whole batch."""

    tokens: int = 0
    loss: float = 0.0
    difference_max: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)

    @torch.no_grad()
    def add(
        self,
        logprobs: torch.Tensor,
        entropy: torch.Tensor,
        sampler: torch.Tensor,
        advantages: torch.Tensor,
        reference: torch.Tensor | None,
        loss: spec_pb2.LossSpec,
    ) -> None:
        """Takes in the [K] trained tokens of a row."""
        logs = log_ratio(logprobs, sampler)
        ratio = torch.exp(logs)
        absolute = (logprobs - sampler).abs()
        values = {
            "entropy": entropy,
            "clip_fraction": is_clipped(ratio, advantages, loss.epsilon, loss.epsilon_high),
            "ratio_mean": ratio,
            "ratio_square": ratio.double().square(),
            "ratio_outside_fraction": (ratio < 0.9) | (ratio > 1.1),
            "mismatch_kl": ratio - 1 - logs,
            "logprob_difference_mean": absolute,
            "advantage_abs_mean": advantages.abs(),
        }
        if reference is not None:
            values["kl_reference"] = kl_divergence(logprobs, reference, loss.kl_estimator)
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value.double().sum())
        self.tokens += len(logprobs)
        self.difference_max = max(self.difference_max, float(absolute.max()))

    def means(self) -> dict[str, float]:
        """The step's metrics; see the README for what each is."""
        means = {name: total / self.tokens for name, total in self.sums.items()}
        square = means.pop("ratio_square")
        return {
            **means,
            "loss": self.loss,
            "logprob_difference_max": self.difference_max,
            # Kish's effective sample size of the importance weights, as a share of the tokens.
            "effective_sample_fraction": means["ratio_mean"] ** 2 / square,
        }
