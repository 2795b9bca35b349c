"""Rows without an adapter beside others, where an operation looks slots up as a list does."""

from __future__ import annotations

import torch
from podium_inference.adapters.base_rows import adapted_alone


def _add(
    inputs: torch.Tensor,
    weights: torch.Tensor,
    output: torch.Tensor,
    slots: torch.Tensor,
    scale: float,
) -> None:
    # The slot -1 is the last one's.
    output += scale * torch.einsum("ni,noi->no", inputs, weights[slots])


def test_a_row_without_an_adapter_gets_nothing_of_the_last_slots() -> None:
    inputs, weights = torch.randn(4, 3), torch.randn(2, 5, 3)
    output, expected = torch.zeros(4, 5), torch.zeros(4, 5)
    slots = torch.tensor([-1, 0, 1, -1])
    for row, slot in ((1, 0), (2, 1)):
        expected[row] = 2 * weights[slot] @ inputs[row]
    adapted_alone(_add)(inputs, weights, output, slots, scale=2)
    torch.testing.assert_close(output, expected)
