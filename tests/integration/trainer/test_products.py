"""A policy whose frozen weights are multiplied by oneDNN, in float32 or of bfloat16 factors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from podium_trainer.domain.packing import pack
from podium_trainer.learner.base import Base
from podium_trainer.learner.frozen_layers import FrozenLinear
from podium_trainer.learner.model import Policy
from podium_trainer.learner.precision import Arithmetic
from podium_trainer.learner.products import Products, has_bfloat16
from podium_trainer.learner.session import Compute, JobConfig, Session
from support.kept_versions import bits
from support.tiny_policy import move_adapter, sample, step_groups, training_spec, weighted

KINDS = [
    Products.ONEDNN,
    pytest.param(
        Products.BFLOAT16,
        marks=pytest.mark.skipif(not has_bfloat16(), reason="this CPU has no bfloat16 products"),
    ),
]
LORA = {"rank": 4, "alpha": 8}


def made(folder: Path, products: Products, **changes: Any) -> Policy:
    training = training_spec(lora=LORA, **changes)
    return Policy(folder, "m", training, seed=0, dtype=torch.float32, products=products)


def gradients(policy: Policy) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs of two trees in one row, and the gradient of their weighed sum, in one piece."""
    ids = [list(range(1, 40)), [*range(1, 20), *range(50, 70)], list(range(60, 90))]
    samples = [sample(tokens, range(8, len(tokens)), seed=k) for k, tokens in enumerate(ids)]
    (row,) = pack(weighted(samples, [0, 0, 1]), 512)
    logprobs = policy.evaluate(row).logprobs
    (logprobs * torch.linspace(-1, 2, len(logprobs))).sum().backward()
    found = [weight.grad for _, weight in sorted(policy.masters.weights.items())]
    kept = torch.cat([gradient.flatten().clone() for gradient in found if gradient is not None])
    policy.masters.discard_gradients()
    return logprobs.detach(), kept


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("products", KINDS)
def test_a_policy_is_torchs_within_what_its_factors_were_rounded(
    small_llama: Path, products: Products, checkpointing: bool
) -> None:
    # Log-probs in nats, gradients in share of their norm.
    nats, share = (1e-5, 1e-5) if products == Products.ONEDNN else (0.15, 0.05)
    policies = [
        made(small_llama, kind, gradient_checkpointing=checkpointing)
        for kind in (Products.TORCH, products)
    ]
    for policy in policies:
        move_adapter(policy)
    (logprobs, expected), (ours, found) = map(gradients, policies)
    assert len(found) == len(expected) > 1000
    assert float((ours - logprobs).abs().mean()) < nats
    assert float((found - expected).norm() / expected.norm()) < share
    assert not torch.equal(found, expected)
    again = gradients(policies[1])
    assert torch.equal(again[0], ours)
    assert torch.equal(again[1], found)


@pytest.mark.parametrize("products", KINDS)
def test_the_reference_of_a_fresh_adapter_is_the_policy(
    small_llama: Path, products: Products
) -> None:
    """To the last bit: an adapter that changes nothing is no step away from its base model."""
    policy = made(small_llama, products)
    tokens = sample(list(range(1, 60)), range(10, 59))
    (row,) = pack(weighted([tokens]), 512)
    with torch.no_grad():
        assert torch.equal(policy.evaluate(row).logprobs, policy.reference_logprobs(row))


def trained(folder: Path, products: Products, base: Base | None = None, **job: Any) -> Session:
    training = training_spec(**{"lora": LORA, "loss": {"kl_coefficient": 0.1}, **job})
    config = JobConfig("j", "m", training, 3)
    session = Session(config, folder, "d", Compute(row_tokens=110, products=products), base=base)
    for step in (1, 2):
        session.train(step_groups(step, groups=2), lambda: False)
    return session


@pytest.mark.parametrize("products", KINDS)
def test_jobs_on_one_base_share_its_rounded_weights(small_llama: Path, products: Products) -> None:
    arithmetic = Arithmetic(torch.float32, products)
    base = Base(small_llama, "d", arithmetic, "", torch.device("cpu"))
    shared = trained(small_llama, products, base)
    shared.park()
    alone = trained(small_llama, products)
    assert bits(shared.checkpoint()) == bits(alone.checkpoint())
    kept = [
        {tensor.data_ptr() for tensor in network.kept()}
        for network in (shared.policy.network, base.network())
    ]
    assert kept[0] == kept[1]
    # Each of two layers' seven, and the head.
    assert len(kept[0]) == (15 if products == Products.BFLOAT16 else 0)


def test_weights_that_all_train_are_multiplied_as_ever(small_llama: Path) -> None:
    full: dict[str, Any] = {"trainable": "TRAINABLE_KIND_FULL", "lora": None}
    sessions = [trained(small_llama, kind, **full) for kind in (Products.TORCH, Products.BFLOAT16)]
    weights = [session.policy.masters.weights for session in sessions]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not any(isinstance(m, FrozenLinear) for m in sessions[1].policy.network.modules())


def test_a_job_that_asks_for_float32_has_it(small_llama: Path) -> None:
    sessions = [
        trained(small_llama, kind, dtype="COMPUTE_DTYPE_FLOAT32")
        for kind in (Products.ONEDNN, Products.BFLOAT16)
    ]
    assert bits(sessions[0].checkpoint()) == bits(sessions[1].checkpoint())
