"""A random two-layer Llama with a vocabulary of 97, and samples for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from podium.core.contract import complete_training
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_trainer.domain.batch import Weighted
from podium_trainer.domain.samples import Sample

if TYPE_CHECKING:
    # It loads Transformers, which most of these tests do without.
    from podium_trainer.learner.model import Policy

VOCABULARY = 97


def build_small_llama(folder: Path, *, seed: int = 0, **changes: object) -> Path:
    """Writes the model: hidden 64, four heads on two key heads, float32."""
    from transformers import LlamaConfig, LlamaForCausalLM

    options: dict[str, object] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.2,
        "tie_word_embeddings": True,
        **changes,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        LlamaForCausalLM(LlamaConfig(**options)).save_pretrained(folder)
    return folder


def training_spec(**changes: Any) -> spec_pb2.TrainingSpec:
    """A specification with every default filled; `loss`, `lora` take dicts."""
    spec = spec_pb2.TrainingSpec(**{"steps": 10, **changes})
    return complete_training(spec)


def move_adapter(policy: Policy, *, seed: int = 1, scale: float = 0.1) -> None:
    """Random numbers into every adapter weight, so that B is not zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in policy.masters.weights.values():
            weight.copy_(torch.randn(weight.shape, generator=generator) * scale)
    policy.masters.publish()


def sample(
    tokens: Sequence[int],
    sampled: Sequence[int],
    *,
    seed: int = 0,
    temperature: float | Sequence[float] = 1.0,
) -> Sample:
    """Of `tokens`, those at the indices `sampled` train."""
    ids = np.array(tokens, np.int64)
    indices = np.array(sampled, np.int64)
    rng = np.random.default_rng(seed)
    temperatures = np.broadcast_to(np.array(temperature, np.float32), indices.shape)
    return Sample(
        context=ids[: indices[-1]],
        positions=indices - 1,
        targets=ids[indices],
        logprobs=-rng.uniform(0.1, 6, len(indices)).astype(np.float32),
        temperatures=temperatures.copy(),
    )


def weighted(samples: Sequence[Sample], groups: Sequence[int] | None = None) -> list[Weighted]:
    """Samples with unlike advantages and equal token weights."""
    total = sum(len(item.targets) for item in samples)
    groups = groups if groups is not None else [0] * len(samples)
    rng = np.random.default_rng(7)
    return [
        Weighted(item, group, number, float(rng.normal()), 1 / total)
        for number, (item, group) in enumerate(zip(samples, groups, strict=True))
    ]


def trajectory(
    name: str,
    reward: float | None,
    tokens: Sequence[int],
    spans: Sequence[tuple[int, int]],
    *,
    logprobs: Sequence[float] | None = None,
    temperature: float = 1.0,
    teacher: Sequence[float] = (),
) -> trajectory_pb2.Trajectory:
    """One history whose sampled runs are `spans`: (start, length) each."""
    record = trajectory_pb2.TokenRecord(token_ids=tokens)
    for start, length in spans:
        record.spans.add(start=start, length=length, temperature=temperature)
    count = sum(length for _, length in spans)
    record.logprobs.extend(logprobs if logprobs is not None else [-1.0] * count)
    record.teacher_logprobs.extend(teacher)
    result = trajectory_pb2.Trajectory(
        id=name, group_id=name.rpartition("/")[0] or "g", scenario_id="s"
    )
    result.histories.add(tokens=record)
    result.stop_reason = trajectory_pb2.STOP_REASON_TERMINATED
    if reward is not None:
        result.reward = reward
    return result


def group(name: str, *trajectories: trajectory_pb2.Trajectory) -> trajectory_pb2.Group:
    """The attempts of one scenario."""
    return trajectory_pb2.Group(id=name, trajectories=trajectories)


def step_groups(step: int, *, groups: int = 3, length: int = 40) -> list[trajectory_pb2.Group]:
    """Groups of four attempts of `length` + 2 tokens, the same for the same step."""
    spans = [(2, 10), (length // 2, length + 2 - length // 2)]
    count = sum(size for _, size in spans)

    def attempt(g: int, i: int) -> trajectory_pb2.Trajectory:
        return trajectory(
            f"s{step}/g{g}/t{i}",
            float((i * 7 + step) % 5),
            [g + 1, step + 3, *[(i * 13 + k * (step + 1)) % VOCABULARY for k in range(length)]],
            spans,
            logprobs=[-3.0 - ((i + k) % 3) for k in range(count)],
        )

    return [group(f"s{step}/g{g}", *(attempt(g, i) for i in range(4))) for g in range(groups)]
