"""What a call of `train` or `train_sft` may say of its steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class TrainConfig:
    """ART's: what may be said anew with every step. Here the job's own rate must be named."""

    learning_rate: float
    """Of the step, and the job's own: any other is refused."""


@dataclass(frozen=True)
class TrainSFTConfig:
    """ART's: how `train_sft` trains. Here the job has the rate, and its schedule."""

    learning_rate: float | None = None
    """None for the job's; any other must be the same."""
    batch_size: int | Literal["auto"] = "auto"
    """Rows of a step; `auto` for `sft.batch_size` of the spec."""
