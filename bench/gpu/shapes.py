"""Models, rows and groups of the GPU bench, made of numbers: nothing is fetched."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from podium.core.contract import complete_training
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_trainer.domain.batch import Weighted
from podium_trainer.domain.packing import Row, build_row
from podium_trainer.domain.samples import Sample
from podium_trainer.learner.model import Policy
from podium_trainer.learner.parallel import Ranks
from transformers import AutoModelForCausalLM, Qwen3Config

QWEN3_VOCABULARY = 151_936
MODELS: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
    },
    "qwen3-1.7b": {
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
    },
    "qwen3-4b": {
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
    },
    # The widths of 0.6B, few enough to be compared number for number.
    "qwen3-narrow": {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "vocab_size": 32_003,
    },
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 509,
    },
}


def model_folder(work: Path, name: str, device: torch.device) -> Path:
    """The model's files, written once: random weights in bfloat16, made on the device."""
    folder = work / name
    if folder.exists():
        return folder
    config = Qwen3Config(
        **{
            "vocab_size": QWEN3_VOCABULARY,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 131_072,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
            "tie_word_embeddings": True,
            **MODELS[name],
        }
    )
    torch.manual_seed(0)
    with device:
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    made = work / f"{name}.part"
    model.save_pretrained(made)
    del model
    made.rename(folder)
    return folder


def forget_model(work: Path, name: str) -> None:
    """Frees what the files take: they may lie in memory."""
    shutil.rmtree(work / name, ignore_errors=True)


def training(*, full: bool = False, rank: int = 16, **changes: Any) -> spec_pb2.TrainingSpec:
    """A specification with its defaults."""
    spec = spec_pb2.TrainingSpec(
        **{"steps": 10, "learning_rate": 1e-4, "dtype": "COMPUTE_DTYPE_BFLOAT16", **changes}
    )
    if full:
        spec.trainable = spec_pb2.TRAINABLE_KIND_FULL
    else:
        spec.lora.rank, spec.lora.alpha = rank, 2 * rank
    return complete_training(spec)


def make_policy(
    folder: Path,
    spec: spec_pb2.TrainingSpec,
    dtype: torch.dtype,
    device: torch.device,
    attention: str = "",
) -> Policy:
    """The trainer's own policy, its adapter moved away from doing nothing."""
    policy = Policy(
        folder, "bench", spec, seed=0, dtype=dtype, attention=attention, ranks=Ranks(device=device)
    )
    if policy.adapter_config:
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for weight in policy.masters.weights.values():
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.02)
        policy.masters.publish()
    return policy


def tree(
    prompt: int, completion: int, group: int, vocabulary: int, *, index: int = 0
) -> list[Weighted]:
    """Group `index`, of random tokens on one prompt; advantages +1 and -1 in turn."""
    rng = np.random.default_rng(index)
    shared = rng.integers(vocabulary, size=prompt)
    weight = 1 / (group * completion)
    items = []
    for number in range(group):
        ids = np.concatenate([shared, rng.integers(vocabulary, size=completion)])
        sample = Sample(
            context=ids[:-1],
            positions=np.arange(prompt - 1, prompt + completion - 1),
            targets=ids[prompt:],
            # No sampler is on record.
            logprobs=np.full(completion, np.nan, np.float32),
            temperatures=np.ones(completion, np.float32),
        )
        advantage = 1.0 if number % 2 == 0 else -1.0
        items.append(Weighted(sample, index, 1000 * index + number, advantage, weight))
    return items


def one_sequence(tokens: int, vocabulary: int) -> Row:
    """A row of a single attempt, of which all but the first token train."""
    return build_row(tree(1, tokens, 1, vocabulary))


def groups(
    count: int, prompt: int, completion: int, group: int, vocabulary: int
) -> list[trajectory_pb2.Group]:
    """What a step is sent: groups with unlike rewards and the sampler's log-probs on record."""
    rng = np.random.default_rng(2)
    made = []
    for g in range(count):
        shared = rng.integers(vocabulary, size=prompt).tolist()
        scored = trajectory_pb2.Group(id=f"g{g}")
        for i in range(group):
            answer = rng.integers(vocabulary, size=completion)
            attempt = scored.trajectories.add(
                id=f"g{g}/t{i}",
                group_id=scored.id,
                scenario_id="s",
                reward=float(i % 3),
                stop_reason=trajectory_pb2.STOP_REASON_TERMINATED,
            )
            record = attempt.histories.add().tokens
            record.token_ids.extend([*shared, *answer.tolist()])
            record.spans.add(start=prompt, length=completion, temperature=1.0)
            likely = -np.log(vocabulary) + rng.normal(0, 0.05, completion)
            record.logprobs.extend(likely.tolist())
        made.append(scored)
    return made


def nodes(rows: Sequence[Row]) -> int:
    """Tokens that are computed."""
    return sum(len(row.tokens) for row in rows)
