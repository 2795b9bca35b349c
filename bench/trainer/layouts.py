"""Flat rows against packed rows, through the same policy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from podium.core.contract import complete_training
from podium.local.models import resolve
from podium.types.v1 import spec_pb2
from podium_trainer.adapters.memory import keep_freed_memory
from podium_trainer.domain.batch import Weighted
from podium_trainer.domain.packing import Row, flat, pack
from podium_trainer.domain.samples import Sample
from podium_trainer.learner.model import Policy
from podium_trainer.learner.objectives import Tokens, token_losses
from transformers import AutoTokenizer

from bench.trainer.measure import (
    alternate,
    clear_peak,
    gradient_difference,
    peak_bytes,
    require_equal,
    spread,
)

SHAPES = ((512, 64, 8), (256, 256, 8), (128, 512, 8))
"""(prompt tokens P, completion tokens C, group size G)"""
TARGET = 0.8
"""Of the token ratio."""
_LOG_RATIOS = (-0.4, -0.1, 0.1, 0.4)
"""Trainer to sampler, nats: on both sides of the clip, and far from its bounds, where rounding
would decide whether a token trains."""


def measure(model: str, repeats: int) -> list[dict[str, Any]]:
    """Time of forward and backward, flat over packed, for each shape.

    One group in one packed row, so that the token ratio is G (P + C) / (P + G C). Runs in
    a process of its own: the heap is set as the trainer's is.
    """
    keep_freed_memory()
    training = specification()
    policy = Policy(resolve(model), model, training, seed=0, dtype=torch.float32)
    move_adapter(policy)
    return [_compare(policy, model, training.loss, shape, repeats) for shape in SHAPES]


def specification() -> spec_pb2.TrainingSpec:
    """LoRA of rank 8, alpha 16, float32."""
    return complete_training(
        spec_pb2.TrainingSpec(
            steps=1,
            lora=spec_pb2.LoraSpec(rank=8, alpha=16),
            dtype=spec_pb2.COMPUTE_DTYPE_FLOAT32,
        )
    )


def move_adapter(policy: Policy) -> None:
    """Small numbers into B: while it is zero, A has no gradient."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in sorted(policy.masters.weights.items()):
            if "lora_B" in name:
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.01)
    policy.masters.publish()


def off_policy(logprobs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Log-probs of a sampler that is another policy, in nats, at most 0."""
    moved = logprobs - rng.choice(_LOG_RATIOS, len(logprobs))
    # A likely token cannot be likelier still by so much: there the sampler is less sure.
    return np.where(moved > 0, logprobs - 0.1, moved).astype(np.float32)


def _compare(
    policy: Policy,
    model: str,
    loss: spec_pb2.LossSpec,
    shape: tuple[int, int, int],
    repeats: int,
) -> dict[str, Any]:
    prompt, completion, group = shape
    samples = text_samples(policy, model, prompt, completion, group)
    rows = {"flat": flat(samples), "packed": pack(samples, prompt + group * completion)}
    losses, gradients = {}, {}
    for name, layout in rows.items():
        losses[name] = forward_backward(policy, layout, loss)
        gradients[name] = {
            key: weight.grad.clone()
            for key, weight in policy.masters.weights.items()
            if weight.grad is not None
        }
        policy.masters.discard_gradients()
    title = f"flat and packed at {shape}"
    difference = gradient_difference(gradients["flat"], gradients["packed"])
    require_equal(f"gradients of {title}", difference)
    off = abs(losses["flat"] - losses["packed"]) / abs(losses["flat"])
    require_equal(f"losses of {title}", off)

    def timed(name: str) -> float:
        start = time.perf_counter()
        forward_backward(policy, rows[name], loss)
        taken = time.perf_counter() - start
        policy.masters.discard_gradients()
        return taken

    clear_peak()
    flats, packs = alternate(repeats, lambda: timed("flat"), lambda: timed("packed"))
    ratio = spread([one / two for one, two in zip(flats, packs, strict=True)])
    tokens = group * (prompt + completion) / (prompt + group * completion)
    return {
        "prompt": prompt,
        "completion": completion,
        "group": group,
        "gradient_difference": difference,
        "loss_difference": off,
        "flat_tokens": sum(len(row.tokens) for row in rows["flat"]),
        "packed_tokens": sum(len(row.tokens) for row in rows["packed"]),
        "token_ratio": tokens,
        "flat_seconds": spread(flats),
        "packed_seconds": spread(packs),
        "time_ratio": ratio,
        "share_of_token_ratio": ratio["median"] / tokens,
        "target": TARGET,
        "met": ratio["median"] / tokens >= TARGET,
        "process_peak_mib": peak_bytes() / 2**20,
    }


def _text(model: str) -> np.ndarray:
    """[n] token ids of this repository's documents.

    Of random ids float32 rounding moves a log-prob now and then by a hundred times the
    mean: then two right layouts have unlike gradients.
    """
    documents = sorted(Path(__file__).parents[2].glob("docs/**/*.md"))
    words = "\n".join(path.read_text() for path in documents)
    tokenizer = AutoTokenizer.from_pretrained(resolve(model))
    return np.array(tokenizer(words).input_ids, np.int64)


def _window(text: np.ndarray, length: int, rng: np.random.Generator) -> np.ndarray:
    start = int(rng.integers(len(text) - length))
    return text[start : start + length]


def text_samples(
    policy: Policy, model: str, prompt: int, completion: int, group: int
) -> list[Weighted]:
    """One group of text; advantages +1 and -1 in turn; every token weighs the same."""
    rng = np.random.default_rng(prompt)
    text = _text(model)
    shared = _window(text, prompt, rng)
    items = []
    for number in range(group):
        ids = np.concatenate([shared, _window(text, completion, rng)])
        sample = Sample(
            context=ids[:-1],
            positions=np.arange(prompt - 1, prompt + completion - 1),
            targets=ids[prompt:],
            logprobs=np.zeros(completion, np.float32),
            temperatures=np.ones(completion, np.float32),
        )
        weight = 1 / (group * completion)
        items.append(Weighted(sample, 0, number, 1.0 if number % 2 == 0 else -1.0, weight))
    with torch.no_grad():
        now = [policy.evaluate(row).logprobs.numpy() for row in flat(items)]
    return [
        replace(item, sample=replace(item.sample, logprobs=off_policy(logprobs, rng)))
        for item, logprobs in zip(items, now, strict=True)
    ]


def forward_backward(policy: Policy, rows: Sequence[Row], loss: spec_pb2.LossSpec) -> float:
    """Adds up the gradient as a step does; returns the loss."""
    result = 0.0
    for row in rows:
        tokens = Tokens(
            logprobs=policy.evaluate(row).logprobs,
            sampler=torch.from_numpy(row.logprobs),
            advantages=torch.from_numpy(row.advantages),
            trajectories=torch.from_numpy(row.trajectories),
        )
        total = (token_losses(tokens, loss).total * torch.from_numpy(row.weights)).sum()
        total.backward()
        policy.masters.collect()
        result += float(total.detach())
    return result
