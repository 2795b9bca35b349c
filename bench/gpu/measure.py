"""Seconds, memory, norms and operations of the GPU bench."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from podium_trainer.domain.packing import Row
from podium_trainer.learner.gradient import trained_tokens
from podium_trainer.learner.model import Policy
from podium_trainer.learner.objectives import token_losses

from bench.gpu.shapes import training

PUBLISHED_PEAK = 989e12
"""Dense bfloat16 operations a second of an H100 SXM, by its datasheet."""


def synchronize(device: torch.device) -> None:
    """Waits for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(work: Callable[[], Any], device: torch.device) -> float:
    """Seconds of the clock, the device's work included."""
    synchronize(device)
    start = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - start


def measured(
    work: Callable[[], Any], device: torch.device, repeats: int, *, seconds: float = 60.0
) -> dict[str, Any]:
    """Seconds of `work` after once to warm up: median, all of them, and the peak of memory.

    It ends early, after two at least, when it took `seconds`.
    """
    first = timed(work, device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    took: list[float] = []
    while len(took) < repeats and (len(took) < 2 or first + sum(took) < seconds):
        took.append(timed(work, device))
    result = {"median_seconds": statistics.median(took), "seconds": took, "first_seconds": first}
    if device.type == "cuda":
        result["peak_gib"] = torch.cuda.max_memory_allocated(device) / 2**30
    return result


def forward_backward(policy: Policy, rows: Sequence[Row]) -> float:
    """The loss of the rows; the gradient is in the masters."""
    loss = training().loss
    total = 0.0
    for row in rows:
        tokens, weights = trained_tokens(row, policy.evaluate(row), None)
        value = (token_losses(tokens, loss).total * weights).sum()
        value.backward()
        policy.masters.collect()
        total += float(value.detach())
    return total


def gradient(policy: Policy, rows: Sequence[Row]) -> dict[str, torch.Tensor]:
    """Of every master, float32 on the CPU."""
    policy.masters.discard_gradients()
    forward_backward(policy, rows)
    found = {
        name: weight.grad.float().cpu()
        for name, weight in policy.masters.weights.items()
        if weight.grad is not None
    }
    policy.masters.discard_gradients()
    return found


def relative(one: torch.Tensor, reference: torch.Tensor) -> float:
    """Norm of the difference over the norm of the reference."""
    reference = reference.double().cpu()
    return float((one.double().cpu() - reference).norm() / reference.norm())


def relative_of_all(
    found: Mapping[str, torch.Tensor], reference: Mapping[str, torch.Tensor]
) -> float:
    """As `relative`, over tensors by name; infinity where the names differ."""
    if found.keys() != reference.keys():
        return float("inf")
    off = sum(float((found[name] - reference[name]).double().square().sum()) for name in found)
    size = sum(float(tensor.double().square().sum()) for tensor in reference.values())
    return float((off / size) ** 0.5)


def required_operations(policy: Policy, rows: Sequence[Row]) -> float:
    """What a layout must compute forward and backward, without recomputation.

    A weight costs 2 operations a token forward, 2 backward for its input's gradient, and 2 more
    for its own where it trains; the head counts where tokens are predicted, its own gradient left
    out; attention 4 forward and 8 backward a visible pair, head and number of it. Norms and the
    adapter's own products are left out, so the share of the peak is on the low side.
    """
    config = policy.network.causal.config
    full = not policy.adapter_config
    weights = sum(
        parameter.numel()
        for name, parameter in policy.network.causal.named_parameters()
        if parameter.dim() == 2 and not any(part in name for part in ("embed", "lora", "lm_head"))
    )
    head = config.vocab_size * config.hidden_size
    pair = 12 * config.num_attention_heads * config.head_dim * config.num_hidden_layers
    total = 0.0
    for row in rows:
        seen = int((row.positions + 1).sum())
        total += (6 if full else 4) * weights * len(row.tokens)
        total += (6 if full else 4) * head * len(row.slot_nodes) + pair * seen
    return total


def published_operations_a_token(policy: Policy, tokens: int) -> float:
    """By the formula that gives prime-rl's published shares (torchtitan's, without causality).

    4 a frozen number, the embedding among them, 6 a trained one, and 12 · layers · hidden size ·
    sequence length, a token; over PUBLISHED_PEAK. It counts all pairs, not only the visible ones.
    """
    config = policy.network.causal.config
    adapter = policy.trainable_parameters
    frozen = sum(parameter.numel() for parameter in policy.network.causal.parameters()) - adapter
    pairs = config.num_hidden_layers * config.hidden_size * tokens
    operations: float = 4 * frozen + 6 * adapter + 12 * pairs
    return operations
