"""Numbers of an update, summed over its trained tokens whatever rows and processes they were in."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from podium_trainer.learner.objectives import TokenLosses

if TYPE_CHECKING:
    from podium_trainer.learner.parallel import Ranks


@dataclass
class Statistics:
    """Sums in double precision; `means` divides by the tokens of the whole batch."""

    loss: float = 0.0
    difference_max: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)

    @torch.no_grad()
    def add(
        self,
        losses: TokenLosses,
        entropy: torch.Tensor,
        advantages: torch.Tensor,
        weights: torch.Tensor,
        *,
        counts: bool = True,
    ) -> None:
        """Takes in the [K] trained tokens of a row.

        One that does not count adds zeros, so that every process has the same names to join.
        All numbers come from the device at once, for each by itself would have the host wait.
        """
        known = ~losses.missing
        ratio = torch.exp(losses.mismatch.double())
        absolute = losses.mismatch.abs()
        values = {
            "tokens": torch.ones_like(entropy),
            "known": known,
            "entropy": entropy,
            "ratio_mean": ratio * known,
            "ratio_square": ratio.square() * known,
            "ratio_outside_fraction": ((ratio < 0.9) | (ratio > 1.1)) & known,
            "mismatch_kl": (ratio - 1 - losses.mismatch) * known,
            "logprob_difference_mean": absolute * known,
            "logprob_difference_square": absolute.square() * known,
            "advantage_abs_mean": advantages.abs(),
            "masked_fraction": ~losses.kept,
            "policy_loss": losses.policy * weights * losses.kept,
        }
        if losses.clipped is not None:
            values["clip_fraction"] = losses.clipped
        if losses.moved is not None:
            moved = losses.moved.double()
            values["kl_step"] = torch.exp(moved) - 1 - moved
            if losses.clipped is not None:
                values["policy_ratio_mean"] = losses.ratio
        if losses.kl is not None:
            values["kl_reference"] = losses.kl
            values["kl_loss"] = (losses.total - losses.policy) * weights * losses.kept
        totals = [0.0] * len(values)
        if counts:
            found = [value.double().sum() for value in values.values()]
            found += [(losses.total * weights).sum().double(), absolute.max().double()]
            *totals, loss, greatest = torch.stack(found).tolist()
            self.loss += loss
            self.difference_max = max(self.difference_max, greatest)
        for name, total in zip(values, totals, strict=True):
            self.sums[name] = self.sums.get(name, 0.0) + total

    def join(self, ranks: Ranks) -> None:
        """Adds up what every process took in; all of them must ask."""
        names = sorted(self.sums)
        held = torch.tensor([self.loss, *(self.sums[name] for name in names)], dtype=torch.float64)
        self.loss, *sums = ranks.add(held).tolist()
        self.sums = dict(zip(names, sums, strict=True))
        self.difference_max = ranks.greatest(self.difference_max)

    def include(self, other: Statistics) -> None:
        """Takes in another update's, joined already."""
        self.loss += other.loss
        self.difference_max = max(self.difference_max, other.difference_max)
        for name, value in other.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def means(self, updates: int = 1) -> dict[str, float]:
        """The metrics, over so many updates; see the README for what each is."""
        sums = dict(self.sums)
        tokens, known = sums.pop("tokens"), sums.pop("known")
        parts = [(name, sums.pop(name)) for name in ("policy_loss", "kl_loss") if name in sums]
        mismatch = {
            name: sums.pop(name) / max(known, 1)
            for name in (
                "ratio_mean",
                "ratio_square",
                "ratio_outside_fraction",
                "mismatch_kl",
                "logprob_difference_mean",
                "logprob_difference_square",
            )
        }
        square = mismatch.pop("ratio_square")
        result: dict[str, float] = {
            **{name: total / tokens for name, total in sums.items()},
            **{name: total / updates for name, total in parts},
            "loss": self.loss / updates,
            "tokens_trained": tokens,
            "missing_logprob_fraction": 1 - known / tokens,
        }
        if not known:
            return result
        squared = mismatch.pop("logprob_difference_square")
        return {
            **result,
            **mismatch,
            "logprob_difference_rms": math.sqrt(squared),
            "logprob_difference_max": self.difference_max,
            # Kish's effective sample size of the importance weights, as a share of the tokens.
            "effective_sample_fraction": mismatch["ratio_mean"] ** 2 / square,
            # Of the policy from the sampler: E[r^2] - 1.
            "chi_square": square - 1,
        }
