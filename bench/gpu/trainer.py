"""`python -m bench.gpu.trainer`: the trainer on a CUDA GPU. It has not been run yet.

Randomly initialised models of Qwen3's shape, 0.6B and 1.7B, made here from numbers, LoRA of
rank 8, one group of (prompt 1024, completion 512, group 8). First the gradient in bfloat16
on the GPU against float32 on the CPU, of a small group; then tokens a second, peak memory
and the share of the matrix rate that was measured in the same call, packed and flat, and
TRL's loss and backward where TRL is importable.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from podium.contract import complete_training
from podium.types.v1 import spec_pb2
from podium_trainer.batch import Weighted
from podium_trainer.model import Policy
from podium_trainer.objectives import Tokens, token_losses
from podium_trainer.packing import Row, flat, pack
from podium_trainer.parallel import Ranks
from podium_trainer.samples import Sample
from transformers import AutoModelForCausalLM, Qwen3Config

from bench.trainer.layouts import move_adapter
from bench.trainer.measure import UnequalError, spread, version

MODELS: dict[str, dict[str, int]] = {
    "qwen3-0.6b": {"hidden_size": 1024, "intermediate_size": 3072},
    "qwen3-1.7b": {"hidden_size": 2048, "intermediate_size": 6144},
}
SHAPE = (1024, 512, 8)
SMALL = (32, 16, 4)
BFLOAT16_TOLERANCE = 0.05
"""Norm of the difference over the norm of the gradient. A bfloat16 number is off by up to 0.4 %,
and 28 layers add up; the bound is a choice, not a measurement."""


def main() -> int:
    """Returns 1 when gradients differ, 2 without CUDA."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.trainer", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--attention", default="", help="of podium_trainer.attention")
    parser.add_argument("--output", type=Path, default=Path("build/bench/gpu_trainer.json"))
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("bench.gpu.trainer needs a CUDA GPU; torch sees none here", file=sys.stderr)
        return 2
    results: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        **{name: version(name) for name in ("torch", "transformers", "trl")},
        "matmul_tflops": _matmul_tflops(),
    }
    status = 0
    for name, sizes in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            _write_model(Path(folder), sizes)
            try:
                results[name] = _measure(Path(folder), options, results["matmul_tflops"])
            except UnequalError as error:
                results[name], status = {"unequal": str(error)}, 1
        torch.cuda.empty_cache()
        print(json.dumps({name: results[name]}, indent=1), flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(results, indent=1) + "\n")
    return status


def _write_model(folder: Path, sizes: dict[str, int]) -> None:
    config = Qwen3Config(
        vocab_size=151936,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40960,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
        tie_word_embeddings=True,
        **sizes,
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)


def _measure(folder: Path, options: argparse.Namespace, tflops: float) -> dict[str, Any]:
    small = _samples(SMALL)
    slow = _policy(folder, torch.float32, torch.device("cpu"), "")
    expected = _gradient(slow, pack(small, 4096))
    del slow
    policy = _policy(folder, torch.bfloat16, torch.device("cuda"), options.attention)
    results: dict[str, Any] = {"parameters": _parameters(policy), "differences": {}}
    for name, rows in {"packed": pack(small, 4096), "flat": flat(small)}.items():
        off = _norm_difference(expected, _gradient(policy, rows))
        results["differences"][name] = off
        if not off <= BFLOAT16_TOLERANCE:
            raise UnequalError(f"{name} bfloat16 gradients differ by {off:.3g} of the norm")
    samples = _samples(SHAPE)
    layouts = {"packed": pack(samples, SHAPE[0] + SHAPE[1] * SHAPE[2]), "flat": flat(samples)}
    times: dict[str, list[float]] = {name: [] for name in layouts}
    peaks: dict[str, float] = {}
    for repeat in range(options.repeats + 1):
        for name, rows in layouts.items():
            torch.cuda.reset_peak_memory_stats()
            seconds = _timed(lambda rows=rows: _forward_backward(policy, rows))  # type: ignore[misc]
            policy.masters.discard_gradients()
            peaks[name] = torch.cuda.max_memory_allocated() / 2**30
            # The first warms up.
            if repeat:
                times[name].append(seconds)
    for name, rows in layouts.items():
        median = spread(times[name])["median"]
        results[name] = {
            "seconds": spread(times[name]),
            "tokens_per_second": sum(len(row.tokens) for row in rows) / median,
            "mfu": _flops(policy, rows) / median / (tflops * 1e12),
            "peak_gib": peaks[name],
        }
    results["flat_over_packed"] = spread(
        [f / p for f, p in zip(times["flat"], times["packed"], strict=True)]
    )
    if importlib.util.find_spec("trl") and importlib.util.find_spec("datasets"):
        from bench.gpu.trl_loss import seconds_of_trl

        del policy
        torch.cuda.empty_cache()
        theirs, peak = seconds_of_trl(folder, SHAPE, options.repeats, _timed)
        results["trl"] = {"seconds": spread(theirs), "peak_gib": peak}
        results["trl_over_packed"] = spread(
            [t / p for t, p in zip(theirs, times["packed"], strict=True)]
        )
    else:
        results["trl"] = {"skipped": "trl or datasets cannot be imported"}
    return results


def _policy(folder: Path, dtype: torch.dtype, device: torch.device, attention: str) -> Policy:
    wanted = (
        spec_pb2.COMPUTE_DTYPE_FLOAT32
        if dtype == torch.float32
        else spec_pb2.COMPUTE_DTYPE_BFLOAT16
    )
    training = complete_training(
        spec_pb2.TrainingSpec(steps=1, lora=spec_pb2.LoraSpec(rank=8, alpha=16), dtype=wanted)
    )
    policy = Policy(
        folder,
        "bench",
        training,
        seed=0,
        dtype=dtype,
        attention=attention,
        ranks=Ranks(device=device),
    )
    move_adapter(policy)
    return policy


def _samples(shape: tuple[int, int, int]) -> list[Weighted]:
    """One group of random tokens; advantages +1 and -1 in turn; no sampler is on record."""
    prompt, completion, group = shape
    rng = np.random.default_rng(0)
    shared = rng.integers(151936, size=prompt)
    items = []
    for number in range(group):
        ids = np.concatenate([shared, rng.integers(151936, size=completion)])
        sample = Sample(
            context=ids[:-1],
            positions=np.arange(prompt - 1, prompt + completion - 1),
            targets=ids[prompt:],
            logprobs=np.full(completion, np.nan, np.float32),
            temperatures=np.ones(completion, np.float32),
        )
        weight = 1 / (group * completion)
        items.append(Weighted(sample, 0, number, 1.0 if number % 2 == 0 else -1.0, weight))
    return items


def _forward_backward(policy: Policy, rows: Sequence[Row]) -> None:
    loss = complete_training(spec_pb2.TrainingSpec(steps=1)).loss
    for row in rows:
        now = policy.evaluate(row).logprobs

        def on(array: np.ndarray, device: torch.device = now.device) -> torch.Tensor:
            return torch.from_numpy(array).to(device)

        tokens = Tokens(now, on(row.logprobs), on(row.advantages), on(row.trajectories))
        (token_losses(tokens, loss).total * on(row.weights)).sum().backward()
        policy.masters.collect()


def _gradient(policy: Policy, rows: Sequence[Row]) -> dict[str, torch.Tensor]:
    _forward_backward(policy, rows)
    found = {
        name: weight.grad.float().cpu()
        for name, weight in policy.masters.weights.items()
        if weight.grad is not None
    }
    policy.masters.discard_gradients()
    return found


def _norm_difference(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> float:
    if one.keys() != two.keys():
        raise UnequalError("gradients of different weights")
    off = sum(float((one[name] - two[name]).square().sum()) for name in one)
    return (off / sum(float(tensor.square().sum()) for tensor in one.values())) ** 0.5


def _timed(work: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def _matmul_tflops() -> float:
    """Best of twenty bfloat16 products of 8192 by 8192, TFLOP/s."""
    size = 8192
    one, two = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    seconds = min(_timed(lambda: one @ two) for _ in range(20))
    return 2 * size**3 / seconds / 1e12


def _parameters(policy: Policy) -> int:
    return sum(parameter.numel() for parameter in policy.network.causal.parameters())


def _flops(policy: Policy, rows: Sequence[Row]) -> float:
    """What the layout must compute, forward and backward, with a frozen base model.

    A frozen weight costs 2 operations a number forward and 2 backward (the gradient of its
    input; it has none itself), the head is one product forward and one for E_p[W], attention
    2 products of each pair that sees each other forward and 5 backward. The adapter, norms
    and recomputation are left out, so the share is on the low side.
    """
    config = policy.network.causal.config
    blocks = sum(
        parameter.numel()
        for name, parameter in policy.network.causal.named_parameters()
        if parameter.dim() == 2
        and "embed" not in name
        and "lora" not in name
        and "head" not in name
    )
    head = config.vocab_size * config.hidden_size
    pair = 2 * config.num_attention_heads * config.head_dim * config.num_hidden_layers
    total = 0.0
    for row in rows:
        seen = int((row.positions + 1).sum())
        total += 4 * blocks * len(row.tokens) + 4 * head * len(row.slot_nodes) + 7 * pair * seen
    return total


if __name__ == "__main__":
    sys.exit(main())
