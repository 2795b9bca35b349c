"""The parts that are timed: what the machine can do, rows, adapters and whole weights, peers."""

from __future__ import annotations

import gc
import importlib.metadata
import importlib.util
import platform
import sys
import time
from typing import Any

import torch
from podium_trainer.domain.blocks import plan_blocks
from podium_trainer.domain.packing import flat, pack
from podium_trainer.learner.attention import DENSE, FLEX
from podium_trainer.learner.model import Policy
from podium_trainer.learner.optimizer import Optimizer
from podium_trainer.learner.phases import Phases
from podium_trainer.learner.step import apply_gradient

from bench.gpu.measure import (
    PUBLISHED_PEAK,
    forward_backward,
    measured,
    published_operations_a_token,
    required_operations,
    timed,
)
from bench.gpu.part import Found
from bench.gpu.shapes import (
    MODELS,
    QWEN3_VOCABULARY,
    forget_model,
    make_policy,
    model_folder,
    nodes,
    one_sequence,
    training,
    tree,
)

PACKAGES = ("torch", "transformers", "peft", "numpy", "protobuf", "safetensors", "triton", "trl")

PUBLISHED = (
    ("qwen3-0.6b", 16_384, {"tokens_per_second": 13_340, "mfu": 0.109, "peak_gib": 5.1}),
    ("qwen3-0.6b", 65_536, {"tokens_per_second": 9_970, "mfu": 0.252}),
    ("qwen3-4b", 16_384, {"tokens_per_second": 6_230, "mfu": 0.217, "peak_gib": 23.3}),
)
"""prime-rl's benchmarks/results/BENCHMARKS.md as of 2026-08: LoRA r16, one H100, FA3."""


def machine(found: Found) -> None:
    """What it is, and its two ceilings: bfloat16 products and copies."""
    found.put("python", sys.version.split()[0])
    found.put("platform", platform.platform())
    found.put("packages", {name: _version(name) for name in PACKAGES})
    device = torch.device(found.device)
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found.put(
            "gpu",
            {
                "name": properties.name,
                "gib": properties.total_memory / 2**30,
                "multiprocessors": properties.multi_processor_count,
                "cuda": torch.version.cuda,
            },
        )
    found.put("matmul_tflops", matmul_tflops(found))
    count = (1 << 20) if found.tiny else (1 << 30)
    source = torch.randn(count // 4, device=device)
    target = torch.empty_like(source)
    seconds = min(timed(lambda: target.copy_(source), device) for _ in range(10))
    found.put("copy_gb_per_second", 2 * count / seconds / 1e9)


def matmul_tflops(found: Found) -> float:
    """Best of twenty bfloat16 products of random squares."""
    device = torch.device(found.device)
    size = 256 if found.tiny else 8192
    one, two = (torch.randn(size, size, device=device).bfloat16() for _ in range(2))
    seconds = min(timed(lambda: one @ two, device) for _ in range(20))
    return 2 * size**3 / seconds / 1e12


def published(found: Found) -> None:
    """The shapes of prime-rl's table: forward, backward and Adam of one attempt of that length."""
    peak = matmul_tflops(found) * 1e12
    for name, tokens, theirs in PUBLISHED:
        wanted = ("tiny", tokens // 256) if found.tiny else (name, tokens)
        for kernel in _kernels(found):
            # A mask of 65,536 by 65,536 is four gigabytes.
            if kernel == DENSE and tokens > 16_384 and not found.tiny:
                continue
            label = f"{name} {tokens} {kernel or 'segments'}"
            found.try_each(label, _step_speed, found, label, *wanted, kernel, peak, theirs)
            _free()
        if not found.tiny and name == "qwen3-4b":
            forget_model(found.work, name)


def rows(found: Found) -> None:
    """Rows of 8k to 32k tokens: a group on one prompt, and how long its mask takes to make."""
    peak = matmul_tflops(found) * 1e12
    name = "tiny" if found.tiny else "qwen3-1.7b"
    for tokens in (64, 128) if found.tiny else (8_192, 16_384, 32_768):
        # A quarter is prompt; eight attempts share it.
        items = tree(tokens // 4, tokens * 3 // 32, 8, _vocabulary(name))
        for kernel in _kernels(found):
            label = f"row {tokens} {kernel or 'segments'}"
            found.try_each(label, _row_speed, found, label, name, items, kernel, peak)
            _free()


def lora_and_full(found: Found) -> None:
    """One step of each at the same tokens, and packed rows against separate ones."""
    peak = matmul_tflops(found) * 1e12
    name = "tiny" if found.tiny else "qwen3-0.6b"
    shape = (16, 8, 4) if found.tiny else (1024, 512, 8)
    items = tree(*shape, _vocabulary(name))
    for kind in ("lora", "full"):
        for layout, dealt in (("packed", pack(items, 1 << 20)), ("flat", flat(items))):
            label = f"{kind} {layout}"
            found.try_each(label, _layout_speed, found, label, name, kind, dealt, peak)
            _free()


def trl(found: Found) -> None:
    """TRL's loss and backward at (1024, 512, 8), where it can be imported."""
    missing = [name for name in ("trl", "datasets") if importlib.util.find_spec(name) is None]
    if missing:
        found.put("skipped", f"{' and '.join(missing)} cannot be imported")
        return
    from bench.gpu.trl_loss import seconds_of_trl

    name = "tiny" if found.tiny else "qwen3-0.6b"
    shape = (16, 8, 4) if found.tiny else (1024, 512, 8)
    device = torch.device(found.device)
    folder = model_folder(found.work, name, device)
    theirs = seconds_of_trl(folder, shape, _vocabulary(name), device, repeats=5)
    found.put("trl", theirs)
    policy = make_policy(folder, training(rank=8), torch.bfloat16, device)
    dealt = pack(tree(*shape, _vocabulary(name)), 1 << 20)
    ours = measured(lambda: _once(policy, dealt), device, 5)
    found.put("podium", ours)
    found.put("trl_over_podium", theirs["median_seconds"] / ours["median_seconds"])


def _kernels(found: Found) -> list[str]:
    return [""] if found.tiny else [FLEX, DENSE]


def _vocabulary(name: str) -> int:
    return int(MODELS[name].get("vocab_size", QWEN3_VOCABULARY))


def _once(policy: Policy, dealt: Any) -> None:
    forward_backward(policy, dealt)
    policy.masters.discard_gradients()


def _build(
    found: Found, name: str, kind: str, kernel: str, *, recompute: bool
) -> tuple[Policy, float]:
    """The policy, and how long it took to load."""
    device = torch.device(found.device)
    folder = model_folder(found.work, name, device)
    began = time.perf_counter()
    spec = training(full=kind == "full", gradient_checkpointing=recompute)
    policy = make_policy(folder, spec, torch.bfloat16, device, kernel)
    return policy, time.perf_counter() - began


def _step_speed(
    found: Found,
    label: str,
    name: str,
    tokens: int,
    kernel: str,
    peak: float,
    theirs: dict[str, float],
) -> None:
    policy, load_seconds = _build(found, name, "lora", kernel, recompute=True)
    spec = training(gradient_checkpointing=True)
    optimizer = Optimizer(policy.masters.weights, spec)
    dealt = [one_sequence(tokens, _vocabulary(name))]

    def step() -> None:
        forward_backward(policy, dealt)
        apply_gradient(policy, optimizer, learning_rate=1e-5, phases=Phases())

    times = measured(step, torch.device(found.device), 3, seconds=25)
    seconds = times["median_seconds"]
    per_token = published_operations_a_token(policy, tokens)
    found.put(
        label,
        {
            **times,
            "load_seconds": load_seconds,
            "tokens_per_second": nodes(dealt) / seconds,
            "mfu": required_operations(policy, dealt) / seconds / peak,
            "published_mfu": per_token * nodes(dealt) / seconds / PUBLISHED_PEAK,
            "theirs": theirs,
        },
    )


def _row_speed(
    found: Found, label: str, name: str, items: list[Any], kernel: str, peak: float
) -> None:
    began = time.perf_counter()
    dealt = pack(items, 1 << 20)
    pack_seconds = time.perf_counter() - began
    began = time.perf_counter()
    plan_blocks(dealt[0].subtree_ends, dealt[0].positions)
    plan_seconds = time.perf_counter() - began
    policy, _ = _build(found, name, "lora", kernel, recompute=True)
    times = measured(lambda: _once(policy, dealt), torch.device(found.device), 3, seconds=20)
    seconds = times["median_seconds"]
    found.put(
        label,
        {
            **times,
            "pack_seconds": pack_seconds,
            "plan_seconds": plan_seconds,
            "tokens_per_second": nodes(dealt) / seconds,
            "mfu": required_operations(policy, dealt) / seconds / peak,
        },
    )


def _layout_speed(
    found: Found, label: str, name: str, kind: str, dealt: list[Any], peak: float
) -> None:
    policy, _ = _build(found, name, kind, "", recompute=False)
    optimizer = Optimizer(policy.masters.weights, training(full=kind == "full"))

    def step() -> None:
        forward_backward(policy, dealt)
        apply_gradient(policy, optimizer, learning_rate=1e-6, phases=Phases())

    times = measured(step, torch.device(found.device), 5, seconds=20)
    seconds = times["median_seconds"]
    found.put(
        label,
        {
            **times,
            "tokens_per_second": nodes(dealt) / seconds,
            "mfu": required_operations(policy, dealt) / seconds / peak,
        },
    )


def _free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
