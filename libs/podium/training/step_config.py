"""What a call of `train` or `train_sft` may say of its steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from podium.core.errors import InvalidArgumentError, Violation

SFT_LEARNING_RATE = 5e-5
"""ART's, of `train_sft` without a rate, where the job's own is one for reinforcement learning."""


@dataclass(frozen=True)
class TrainConfig:
    """ART's: what may be said anew with every step."""

    learning_rate: float
    """Of the step, above 0 up to 1, in place of the job's with its warm-up and schedule."""


@dataclass(frozen=True)
class TrainSFTConfig:
    """ART's: how `train_sft` trains."""

    learning_rate: float | Sequence[float] | None = None
    """Of every step, or of each in turn, above 0 up to 1, in place of the job's with its warm-up
    and schedule. None for the job's where its spec has `sft`, and 5e-5 where it has not."""
    batch_size: int | Literal["auto"] = "auto"
    """Rows of a step; `auto` for `sft.batch_size` of the spec, 8 unless it says otherwise."""
    assistant_turns: Literal["all", "last"] = "all"
    """Which of the assistant's messages train: all but those of weight 0, or of them the last."""


def check_rate(rate: Any, path: str) -> float:
    """The rate as a float.

    Raises:
        InvalidArgumentError: it is none that a step can have.
    """
    is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
    if not is_number or not math.isfinite(rate) or not 0 < rate <= 1:
        text = f"got {rate!r}; allowed are numbers above 0 up to 1"
        raise InvalidArgumentError(violations=[Violation(path, text)])
    return float(rate)
