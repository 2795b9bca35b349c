"""T1: what a step says about trainer and sampler, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from podium_trainer.learner.objectives import Tokens, token_losses
from podium_trainer.learner.statistics import Statistics
from support.tiny_policy import training_spec
from torch.utils._python_dispatch import TorchDispatchMode

LOSS = training_spec().loss
SAMPLER = [-1.0, -2.0, -3.0, math.nan]
OFF = [0.0, 0.2, -0.05, 5.0]
"""Trainer less sampler; the last was not recorded."""


def means(*parts: slice, apart: slice | None = None) -> dict[str, float]:
    """Of the four tokens, taken in row by row; those `apart` do not count."""
    statistics = Statistics()
    for part in (*parts, *([apart] if apart else [])):
        sampler = torch.tensor(SAMPLER)[part]
        now = torch.nan_to_num(sampler, nan=-1.0) + torch.tensor(OFF)[part]
        advantages = torch.tensor([1.0, -1.0, 1.0, -1.0])[part]
        tokens = Tokens(now, sampler, advantages, torch.arange(4)[part])
        entropy = torch.tensor([1.0, 2.0, 3.0, 4.0])[part]
        weights = torch.full_like(entropy, 0.25)
        losses = token_losses(tokens, LOSS)
        statistics.add(losses, entropy, advantages, weights, counts=part is not apart)
    return statistics.means()


def test_t1_the_mismatch_meter() -> None:
    found = means(slice(0, 4))
    known = OFF[:3]
    ratios = [math.exp(off) for off in known]
    squares = sum(ratio**2 for ratio in ratios) / 3
    expected = {
        "logprob_difference_mean": sum(map(abs, known)) / 3,
        "logprob_difference_rms": math.sqrt(sum(off**2 for off in known) / 3),
        "logprob_difference_max": 0.2,
        "mismatch_kl": sum(ratio - 1 - off for ratio, off in zip(ratios, known, strict=True)) / 3,
        "ratio_mean": sum(ratios) / 3,
        "ratio_outside_fraction": 1 / 3,
        "effective_sample_fraction": (sum(ratios) / 3) ** 2 / squares,
        "chi_square": squares - 1,
        "missing_logprob_fraction": 1 / 4,
        "tokens_trained": 4,
        "entropy": 2.5,
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-5), name


class Reads(TorchDispatchMode):
    """Counts the numbers that the program waits for one by one."""

    count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_a_row_reads_no_number_by_itself() -> None:
    with Reads() as reads:
        assert torch.ones(1).sum().item() == 1
        assert reads.count == 1
        means(slice(0, 4))
    assert reads.count == 1


def test_t10_rows_change_no_number() -> None:
    whole = means(slice(0, 4))
    for parts in [(slice(0, 1), slice(1, 4)), (slice(3, 4), slice(0, 3))]:
        assert means(*parts) == pytest.approx(whole, rel=1e-6)


def test_t17_a_row_that_does_not_count_adds_nothing() -> None:
    assert means(slice(0, 3), apart=slice(1, 4)) == means(slice(0, 3))


def test_t6_nothing_recorded_is_no_mismatch_and_is_counted() -> None:
    found = means(slice(3, 4))
    assert found["missing_logprob_fraction"] == 1
    assert "logprob_difference_mean" not in found
