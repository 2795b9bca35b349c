"""T8, T9, T11: rows hold every sample once, and mean what separate sequences mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from podium.types.v1 import spec_pb2
from podium_trainer.domain.batch import Weighted
from podium_trainer.domain.packing import Row, build_row, flat, pack
from podium_trainer.learner.attention import DENSE
from podium_trainer.learner.model import Policy
from podium_trainer.learner.objectives import Tokens, token_losses
from support.tiny_policy import move_adapter, sample, training_spec, weighted
from support.trees import samples_of_trees

LOSS = training_spec(loss={"kl_coefficient": 0.1}).loss


def evaluate(
    policy: Policy, rows: list[Row], loss: spec_pb2.LossSpec = LOSS
) -> tuple[dict[int, np.ndarray], dict[str, torch.Tensor], float]:
    """Log-probs by trajectory, summed gradients by weight, and the loss."""
    policy.masters.discard_gradients()
    logprobs: dict[int, list[tuple[int, float]]] = {}
    total = 0.0
    for row in rows:
        now = policy.evaluate(row)
        tokens = Tokens(
            logprobs=now.logprobs,
            sampler=torch.from_numpy(row.logprobs),
            advantages=torch.from_numpy(row.advantages),
            trajectories=torch.from_numpy(row.trajectories),
            reference=policy.reference_logprobs(row),
        )
        losses = token_losses(tokens, loss).total
        value = (losses * torch.from_numpy(row.weights)).sum()
        value.backward()
        policy.masters.collect()
        total += float(value.detach())
        depth = row.positions[row.slot_nodes[row.slots]]
        for who, where, what in zip(row.trajectories, depth, now.logprobs.tolist(), strict=True):
            logprobs.setdefault(int(who), []).append((int(where), what))
    gradients = {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad.clone()
        for name, weight in policy.masters.weights.items()
    }
    policy.masters.discard_gradients()
    ordered = {who: np.array([x for _, x in sorted(found)]) for who, found in logprobs.items()}
    return ordered, gradients, total


def assert_equal_evaluation(policy: Policy, one: list[Row], two: list[Row]) -> None:
    logprobs, gradients, loss = evaluate(policy, one)
    expected_logprobs, expected_gradients, expected_loss = evaluate(policy, two)
    assert logprobs.keys() == expected_logprobs.keys()
    for who, values in expected_logprobs.items():
        np.testing.assert_allclose(logprobs[who], values, atol=1e-5, rtol=1e-5)
    # The greatest gradient sets the scale: a weight's own may be 0 by cancellation. A log-prob may
    # be off by 1e-5 of 1 + itself, as above; its ratio to the sampler's, by which the gradient is
    # multiplied, is then off by as much, and a log-prob of -5 is no rarity.
    scale = max(float(gradient.abs().max()) for gradient in expected_gradients.values())
    for name, gradient in expected_gradients.items():
        assert float((gradients[name] - gradient).abs().max()) <= 5e-5 * max(scale, 1), name
    assert loss == pytest.approx(expected_loss, rel=5e-5, abs=5e-5)


@pytest.mark.timeout(600)
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(items=samples_of_trees(), room=st.integers(0, 30))
def test_t9_packed_equals_flat(policy: Policy, items: list[Weighted], room: int) -> None:
    longest = max(len(item.sample.context) for item in items)
    packed = pack(items, longest + room)
    assert all(len(row.tokens) <= longest + room for row in packed)
    assert_equal_evaluation(policy, packed, flat(items))


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
    mask = row.mask()
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


def test_t8_samples_do_not_see_each_other(policy: Policy) -> None:
    one = sample([1, 2, 3, 4, 5], [3, 4])
    before = policy.evaluate(build_row(weighted([one, sample([1, 2, 9, 9, 9], [3, 4])])))
    other = [sample([1, 2, 60, 61, 62], [3, 4]), sample([70, 2, 3, 4], [3])]
    row = build_row(weighted([one, *other]))
    after = policy.evaluate(row)
    first = build_row(weighted([one, sample([1, 2, 9, 9, 9], [3, 4])]))
    torch.testing.assert_close(
        after.logprobs[torch.from_numpy(row.trajectories == 0)],
        before.logprobs[torch.from_numpy(first.trajectories == 0)],
        atol=1e-6,
        rtol=0,
    )


def test_dense_attention_agrees(policy: Policy, small_llama: Path) -> None:
    training = training_spec(lora={"rank": 4, "alpha": 8})
    dense = Policy(small_llama, "m", training, seed=0, dtype=torch.float32, attention=DENSE)
    move_adapter(dense)
    items = weighted(
        [
            sample([1, 2, 3, 4, 5, 6], [3, 5]),
            sample([1, 2, 3, 9, 5, 6], [3, 4, 5], seed=1),
            sample([1, 2, 3, 9, 8], [4], seed=2),
            sample([30, 31, 32], [1, 2], seed=3),
        ]
    )
    rows = [build_row(items)]
    logprobs, gradients, loss = evaluate(policy, rows)
    other_logprobs, other_gradients, other_loss = evaluate(dense, rows)
    for who, values in logprobs.items():
        np.testing.assert_allclose(values, other_logprobs[who], atol=1e-5)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, other_gradients[name], atol=1e-5, rtol=1e-5)
    assert loss == pytest.approx(other_loss, abs=1e-5)
