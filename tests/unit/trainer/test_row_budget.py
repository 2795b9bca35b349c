"""A row takes as much as it may hold, to the last node."""

from __future__ import annotations

import pytest
from podium_trainer.domain.packing import pack
from support.tiny_policy import sample, weighted

PROMPT = [1, 2, 3]


@pytest.mark.parametrize(("room", "rows"), [(9, [9]), (8, [7, 5])])
def test_a_group_that_just_fits_is_not_cut(room: int, rows: list[int]) -> None:
    """Three attempts of two tokens each beside their prompt; the last one predicts only."""
    attempts = [sample([*PROMPT, 10 + a, 20 + a, 5], [3, 4, 5], seed=a) for a in range(3)]
    assert [len(row.tokens) for row in pack(weighted(attempts), room)] == rows


@pytest.mark.parametrize(("room", "rows"), [(9, [9]), (8, [5, 4])])
def test_two_groups_that_just_fit_share_a_row(room: int, rows: list[int]) -> None:
    groups = [sample([*PROMPT, 10, 11, 5], [5]), sample([70, 71, 72, 73, 5], [4], seed=1)]
    assert [len(row.tokens) for row in pack(weighted(groups, [0, 1]), room)] == rows
