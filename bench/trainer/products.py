"""Products of frozen weights as torch computes them, by oneDNN, and of bfloat16 factors."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from podium.local.models import resolve
from podium_trainer.adapters.memory import keep_freed_memory
from podium_trainer.domain.packing import pack
from podium_trainer.learner.model import Policy
from podium_trainer.learner.products import Products, multiply, refusal

from bench.trainer.layouts import forward_backward, move_adapter, specification, text_samples
from bench.trainer.measure import (
    BFLOAT16_TOLERANCE,
    TOLERANCE,
    gradient_difference,
    require_equal,
    spread,
)

SHAPE = (40, 64, 8)
"""(prompt tokens P, completion tokens C, group size G): a group of the whole step's."""
_RATE_SHAPE = (640, 576, 1536)
"""Of a product of SmolLM2's: tokens, and a layer's two sizes."""


def measure(model: str, repeats: int) -> dict[str, Any]:
    """Forward and backward of one packed row each way, in turn. In a process of its own.

    Raises:
        UnequalError: gradients or log-probs are further apart than rounding takes them.
    """
    keep_freed_memory()
    folder, training = resolve(model), specification()
    prompt, completion, group = SHAPE
    skipped = {kind: refusal(kind, "auto", 1) for kind in Products}
    policies = {
        kind: _policy(folder, model, kind) for kind, refused in skipped.items() if not refused
    }
    samples = text_samples(policies[Products.TORCH], model, prompt, completion, group)
    rows = pack(samples, prompt + group * completion)
    tokens = sum(len(row.tokens) for row in rows)
    operations = _operations(policies[Products.TORCH], rows)
    found: dict[str, Any] = {}
    expected: tuple[torch.Tensor, dict[str, torch.Tensor]] | None = None
    for kind, policy in policies.items():
        with torch.no_grad():
            logprobs = torch.cat([policy.evaluate(row).logprobs for row in rows])
        forward_backward(policy, rows, training.loss)
        gradients = {
            name: weight.grad.clone()
            for name, weight in policy.masters.weights.items()
            if weight.grad is not None
        }
        policy.masters.discard_gradients()
        expected = expected or (logprobs, gradients)
        allowed = BFLOAT16_TOLERANCE if kind == Products.BFLOAT16 else TOLERANCE
        difference = gradient_difference(expected[1], gradients)
        nats = float((logprobs - expected[0]).abs().mean())
        rate = gflops(kind)
        found[kind] = {
            "gradient_difference": require_equal(f"gradients of {kind}", difference, allowed),
            "gradient_share": _share(expected[1], gradients),
            "nats": require_equal(f"log-probs of {kind}", nats, allowed),
            "gflops": rate,
            "bound_seconds": operations / rate / 1e9,
        }
    seconds: dict[Products, list[float]] = {kind: [] for kind in policies}
    for _ in range(repeats):
        for kind, policy in policies.items():
            start = time.perf_counter()
            forward_backward(policy, rows, training.loss)
            seconds[kind].append(time.perf_counter() - start)
            policy.masters.discard_gradients()
    for kind, taken in seconds.items():
        pairs = zip(seconds[Products.TORCH], taken, strict=True)
        found[kind] |= {
            "seconds": spread(taken),
            "ratio": spread([one / two for one, two in pairs]),
        }
    ways = {str(kind): found.get(kind, {"skipped": skipped[kind]}) for kind in Products}
    return {"shape": SHAPE, "tokens": tokens, "operations": operations, "ways": ways}


def _policy(folder: Path, model: str, kind: Products) -> Policy:
    policy = Policy(folder, model, specification(), seed=0, dtype=torch.float32, products=kind)
    move_adapter(policy)
    return policy


def _operations(policy: Policy, rows: Any) -> float:
    """Of frozen weights, forward and backward: 4 a number and token, the head's where one trains.

    Attention and adapters are not in it.
    """
    head = policy.network.causal.get_output_embeddings().weight
    total = 0.0
    for row in rows:
        for name, weight in policy.network.causal.named_parameters():
            if weight.dim() == 2 and weight is not head and "lora_" not in name:
                total += 4.0 * weight.numel() * len(row.tokens)
        total += 4.0 * head.numel() * len(row.slot_nodes)
    return total


def _share(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> float:
    """The difference's norm over that of `one`."""
    apart = sum(float((one[name] - two[name]).square().sum()) for name in one)
    return float((apart / sum(float(tensor.square().sum()) for tensor in one.values())) ** 0.5)


def gflops(kind: Products) -> float:
    """The rate of one product on all threads of this process, the best of many."""
    rows, inner, outer = _RATE_SHAPE
    dtype = torch.bfloat16 if kind == Products.BFLOAT16 else torch.float32
    one, two = torch.randn(rows, inner).to(dtype), torch.randn(outer, inner).to(dtype)
    best = float("inf")
    for _ in range(30):
        start = time.perf_counter()
        one @ two.T if kind == Products.TORCH else multiply(one, two)
        best = min(best, time.perf_counter() - start)
    return 2.0 * rows * inner * outer / best / 1e9
