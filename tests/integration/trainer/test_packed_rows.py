"""T8, T9: rows mean to a model what separate sequences mean."""

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
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(items=samples_of_trees(), room=st.integers(0, 30))
def test_t9_packed_equals_flat(policy: Policy, items: list[Weighted], room: int) -> None:
    longest = max(len(item.sample.context) for item in items)
    packed = pack(items, longest + room)
    assert all(len(row.tokens) <= longest + room for row in packed)
    assert_equal_evaluation(policy, packed, flat(items))


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
