"""T11: rows hold every sample once, and every node sees its own history."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from podium_trainer.domain.batch import Weighted
from podium_trainer.domain.packing import build_row, pack
from podium_trainer.learner.layout import Layout
from support.tiny_policy import sample, weighted
from support.trees import samples_of_trees


@given(items=samples_of_trees(), room=st.integers(0, 30))
def test_t11_every_sample_is_placed_once_within_the_budget(
    items: list[Weighted], room: int
) -> None:
    longest = max(len(item.sample.context) for item in items)
    rows = pack(items, longest + room)
    assert all(len(row.tokens) <= longest + room for row in rows)
    placed = sorted(
        (int(who), *key)
        for row in rows
        for who, *key in zip(
            row.trajectories,
            row.positions[row.slot_nodes[row.slots]].tolist(),
            row.targets.tolist(),
            row.logprobs.tolist(),
            row.slot_temperatures[row.slots].tolist(),
            strict=True,
        )
    )
    expected = sorted(
        (item.trajectory, *key)
        for item in items
        for key in zip(
            item.sample.positions.tolist(),
            item.sample.targets.tolist(),
            item.sample.logprobs.tolist(),
            item.sample.temperatures.tolist(),
            strict=True,
        )
    )
    assert placed == expected


@given(items=samples_of_trees())
def test_a_node_sees_exactly_its_own_history(items: list[Weighted]) -> None:
    row = build_row(items)
    mask = Layout(row, torch.device("cpu")).mask.numpy()
    histories = {tuple(item.sample.context) for item in items}
    prefixes = {history[: n + 1] for history in histories for n in range(len(history))}
    seen = [tuple(row.tokens[mask[node]]) for node in range(len(row.tokens))]
    assert sorted(seen) == sorted(prefixes)
    np.testing.assert_array_equal(row.positions, mask.sum(axis=1) - 1)
    covered = np.zeros_like(mask)
    for start, end, subtree in row.segments():
        for query in range(start, subtree):
            covered[query, start : min(end, query + 1)] = True
    np.testing.assert_array_equal(covered, mask)


def test_a_fork_predicts_several_tokens_from_one_node() -> None:
    prompt = [5, 6, 7]
    items = weighted([sample([*prompt, 10, 11], [3, 4]), sample([*prompt, 20, 21], [3, 4], seed=1)])
    row = build_row(items)
    assert row.tokens.tolist() == [5, 6, 7, 10, 20]
    assert row.positions.tolist() == [0, 1, 2, 3, 3]
    assert row.subtree_ends.tolist() == [5, 5, 5, 4, 5]
    assert row.slot_nodes.tolist() == [2, 3, 4]
    by_slot = sorted(zip(row.slots.tolist(), row.targets.tolist(), strict=True))
    assert by_slot == [(0, 10), (0, 20), (1, 11), (2, 21)]
    assert row.segments() == [(0, 3, 5), (3, 4, 4), (4, 5, 5)]


def test_duplicates_share_every_node_and_keep_their_own_numbers() -> None:
    tokens = [1, 2, 3, 4]
    items = weighted([sample(tokens, [2, 3]), sample(tokens, [2, 3], seed=1)])
    row = build_row(items)
    assert len(row.tokens) == 3
    assert len(row.slot_nodes) == 2
    assert row.trajectories.tolist() == [0, 1, 0, 1]
    assert row.logprobs[::2].tolist() == items[0].sample.logprobs.tolist()


def test_temperatures_of_one_node_are_kept_apart() -> None:
    tokens = [1, 2, 3]
    row = build_row(
        weighted([sample(tokens, [2], temperature=1.0), sample(tokens, [2], temperature=0.7)])
    )
    assert row.slot_nodes.tolist() == [1, 1]
    assert sorted(row.slot_temperatures.tolist()) == [pytest.approx(0.7), 1.0]


def test_groups_share_a_row_and_a_system_prompt() -> None:
    system = list(range(20, 30))
    items = weighted(
        [sample([*system, g, g + 1, a], [12], seed=a) for g in (40, 50) for a in (1, 2)],
        [0, 0, 1, 1],
    )
    (row,) = pack(items, 14)
    assert len(row.tokens) == 10 + 2 + 2


def test_a_group_that_is_too_great_is_cut() -> None:
    items = weighted([sample([1, 2, 3, 10 + a, 30 + a, 5], [5], seed=a) for a in range(5)])
    rows = pack(items, 8)
    assert sorted(len(row.tokens) for row in rows) == [5, 7, 7]


def test_a_sample_longer_than_a_row_is_an_error() -> None:
    with pytest.raises(ValueError, match="longer than a row"):
        pack(weighted([sample(range(10), [9])]), 8)


def test_packing_asks_before_each_unit_and_each_row_and_ends_where_it_is_told() -> None:
    items = weighted([sample([number, *range(8)], [8]) for number in (20, 21, 22)], [0, 1, 2])
    asked: list[None] = []
    assert len(pack(items, 16, lambda: asked.append(None))) == 2
    assert len(asked) == 3 + 2
    left = iter(range(4))
    with pytest.raises(StopIteration):
        pack(items, 16, lambda: next(left) and None)
