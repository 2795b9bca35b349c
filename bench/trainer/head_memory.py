"""Peak memory of the head: a chunk of logits at a time, against all of them."""

from __future__ import annotations

import time
from typing import Any

import torch
from podium_trainer.learner.head import logprobs_and_entropy

from bench.trainer.measure import (
    clear_peak,
    gradient_difference,
    in_child,
    peak_bytes,
    require_equal,
    resident_bytes,
    spread,
)

POSITIONS = 2048
SIZES = tuple((vocabulary, hidden) for vocabulary in (49152, 151936) for hidden in (576, 1024))
"""(V, H)"""


def measure(repeats: int) -> list[dict[str, Any]]:
    """Forward and backward of the frozen head over 2048 positions, by size.

    The plain one keeps [positions, V] logits and their log-softmax for autograd; it does
    not make the entropy, which the chunked one gives too.
    """
    results = []
    for vocabulary, hidden in SIZES:
        differences = in_child(_differences, vocabulary, hidden)
        peaks: dict[str, list[float]] = {"chunked": [], "plain": []}
        seconds: dict[str, list[float]] = {"chunked": [], "plain": []}
        for _ in range(repeats):
            for way in peaks:
                peak, taken = in_child(_peak, way, vocabulary, hidden)
                peaks[way].append(peak)
                seconds[way].append(taken)
        results.append(
            {
                "vocabulary": vocabulary,
                "hidden": hidden,
                "positions": POSITIONS,
                **differences,
                "chunked_peak_mib": spread([peak / 2**20 for peak in peaks["chunked"]]),
                "plain_peak_mib": spread([peak / 2**20 for peak in peaks["plain"]]),
                "memory_ratio": spread(
                    [p / c for p, c in zip(peaks["plain"], peaks["chunked"], strict=True)]
                ),
                "time_ratio": spread(
                    [p / c for p, c in zip(seconds["plain"], seconds["chunked"], strict=True)]
                ),
            }
        )
    return results


def _inputs(vocabulary: int, hidden: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(POSITIONS, hidden, generator=generator).requires_grad_()
    # Of the size that makes logits of about one, whatever the hidden size.
    weight = torch.randn(vocabulary, hidden, generator=generator) * hidden**-0.5
    targets = torch.randint(vocabulary, (POSITIONS,), generator=generator)
    gradient = torch.randn(POSITIONS, generator=generator)
    return states, weight, targets, gradient


def _logprobs(
    way: str, states: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """[positions] log-probs of the targets, in nats."""
    if way == "plain":
        logits = states @ weight.T
        return torch.log_softmax(logits, dim=-1).gather(1, targets[:, None])[:, 0]
    slots = torch.arange(len(targets))
    return logprobs_and_entropy(states, weight, torch.ones(len(targets)), slots, targets)[0]


def _differences(vocabulary: int, hidden: int) -> dict[str, float]:
    states, weight, targets, gradient = _inputs(vocabulary, hidden)
    found: dict[str, dict[str, torch.Tensor]] = {}
    for way in ("plain", "chunked"):
        states.grad = None
        logprobs = _logprobs(way, states, weight, targets)
        logprobs.backward(gradient)
        assert states.grad is not None
        found[way] = {"logprobs": logprobs.detach(), "states": states.grad}
    name = f"vocabulary {vocabulary}, hidden {hidden}"
    pairs = {
        part: gradient_difference({part: found["plain"][part]}, {part: found["chunked"][part]})
        for part in ("logprobs", "states")
    }
    return {
        "logprob_difference": require_equal(f"log-probs of {name}", pairs["logprobs"]),
        "gradient_difference": require_equal(f"gradients of {name}", pairs["states"]),
    }


def _peak(way: str, vocabulary: int, hidden: int) -> tuple[int, float]:
    """Bytes above what the inputs hold, and seconds."""
    # Threads and the library's own buffers come with the first product.
    torch.randn(512, 512) @ torch.randn(512, 512)
    states, weight, targets, gradient = _inputs(vocabulary, hidden)
    clear_peak()
    before = resident_bytes()
    start = time.perf_counter()
    _logprobs(way, states, weight, targets).backward(gradient)
    return peak_bytes() - before, time.perf_counter() - start
