"""Equal results with TRL's own functions, from PyPI, where they run on the CPU."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from podium.types.v1 import spec_pb2
from podium_trainer.domain.advantages import advantages
from podium_trainer.domain.batch import Weighted
from podium_trainer.domain.packing import build_row
from podium_trainer.learner.head import logprobs_and_entropy
from podium_trainer.learner.model import Policy
from support.trees import samples_of_trees
from trl.experimental.async_grpo.packing import TreeRow
from trl.kernels.chunked_logprob import ChunkedLogProbFunction


def test_t2_the_head_equals_trls_chunked_logprob() -> None:
    generator = torch.Generator().manual_seed(0)
    count, size, vocabulary, temperature = 37, 48, 1000, 0.7
    hidden = torch.randn(count, size, generator=generator)
    weight = torch.randn(vocabulary, size, generator=generator) * 0.3
    targets = torch.randint(vocabulary, (count,), generator=generator)
    factors = torch.randn(count, generator=generator)

    def differentiated(ours: bool) -> tuple[torch.Tensor, ...]:
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        if ours:
            heat = torch.full((count,), temperature)
            logprobs, entropy = logprobs_and_entropy(
                h, w, heat, torch.arange(count), targets, chunk=16
            )
        else:
            logprobs, entropy, *_ = ChunkedLogProbFunction.apply(
                h, w, None, targets, temperature, 128
            )
        gradients = torch.autograd.grad((logprobs * factors).sum(), [h, w])
        return logprobs.detach(), entropy.detach(), *gradients

    for got, expected in zip(differentiated(True), differentiated(False), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def by_trl(policy: Policy, items: list[Weighted]) -> list[np.ndarray]:
    """[K] log-probs of each item's trained tokens, over TRL's trie row.

    TRL's attention needs a GPU's kernel; the mask here is what its indices say.
    """
    row = TreeRow()
    for item in items:
        sample = item.sample
        # TRL's samples end with their last trained token.
        tokens = np.append(sample.context, sample.targets[-1])
        mask = np.zeros(len(tokens), bool)
        mask[sample.positions + 1] = True
        logprobs = np.zeros(len(tokens), np.float32)
        logprobs[sample.positions + 1] = sample.logprobs
        row.add(
            {
                "input_ids": torch.from_numpy(tokens),
                "completion_mask": torch.from_numpy(mask),
                "old_log_probs": torch.from_numpy(logprobs),
                "advantage": item.advantage,
                "group_id": item.group,
            }
        )
    packed = row.pack()
    size = len(packed["input_ids"])
    sees = torch.zeros(size, size, dtype=torch.bool)
    queries, keys = packed["tree_cu_seqlens_q"].tolist(), packed["tree_cu_seqlens_k"].tolist()
    for segment in range(len(queries) - 1):
        path = packed["tree_kv_index"][keys[segment] : keys[segment + 1]]
        length = queries[segment + 1] - queries[segment]
        for offset in range(length):
            sees[queries[segment] + offset, path[: len(path) - length + offset + 1]] = True
    causal = policy.network.causal
    before = causal.config._attn_implementation
    causal.set_attn_implementation("sdpa")
    try:
        logits = causal(
            input_ids=packed["input_ids"][None],
            position_ids=packed["position_ids"][None],
            attention_mask=sees[None, None],
        ).logits[0]
    finally:
        causal.set_attn_implementation(before)
    targets = torch.from_numpy(np.concatenate([item.sample.targets for item in items]))
    temperatures = torch.from_numpy(np.concatenate([item.sample.temperatures for item in items]))
    logs = torch.log_softmax(logits[packed["token_index"]] / temperatures[:, None], -1)
    scored = logs[torch.arange(len(targets)), targets].detach().numpy()
    owners = packed["segment_id"].numpy()
    return [scored[owners == number] for number in range(len(items))]


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(items=samples_of_trees())
def test_t9_rows_equal_trls_trie_rows(policy: Policy, items: list[Weighted]) -> None:
    row = build_row(items)
    ours = policy.evaluate(row).logprobs.detach().numpy()
    # Trained tokens lie in the row by slot; within a sample by depth.
    depth = row.positions[row.slot_nodes[row.slots]]
    for item, expected in zip(items, by_trl(policy, items), strict=True):
        own = np.flatnonzero(row.trajectories == item.trajectory)
        own = own[np.argsort(depth[own])]
        np.testing.assert_allclose(ours[own], expected, atol=2e-5, rtol=1e-5)


def test_t14_sample_deviation_is_trls_but_for_its_epsilon() -> None:
    """TRL divides by the sample deviation + 1e-4, we by the deviation + 1e-6."""
    rewards = np.array([0.1, 0.9, 0.4, 0.4])
    tensor = torch.from_numpy(rewards)
    trls = (tensor - tensor.mean()) / (tensor.std() + 1e-4)
    (ours,) = advantages([rewards], spec_pb2.ADVANTAGE_KIND_STD, spec_pb2.DEVIATION_SAMPLE)
    np.testing.assert_allclose(ours, trls.numpy(), rtol=1e-3)
