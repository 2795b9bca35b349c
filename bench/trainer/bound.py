"""What no whole step can be faster than: its matrix products at the rate that one product has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from podium_trainer.learner.products import Products, refusal
from safetensors import safe_open

_ENDS = ("lm_head.weight", "model.embed_tokens.weight")
"""The head's names, of which the second is its own where the two ends share one matrix."""


@dataclass(frozen=True)
class Work:
    """Operations of one step's products of frozen weights.

    Prompts of the generation are not in it, which a cache may hold, nor are attention, adapters,
    and whatever is no product: a step takes longer.
    """

    generation: float
    training: float


@dataclass(frozen=True)
class Sizes:
    """Numbers in a model's matrices."""

    blocks: int
    head: int


def sizes(folder: Path) -> Sizes:
    """Of the model whose files `folder` holds.

    Raises:
        ValueError: its files have no head by a known name.
    """
    blocks, ends = 0, {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - not a dict
                shape = tensors.get_slice(name).get_shape()
                if ".layers." in name and len(shape) == 2:
                    blocks += shape[0] * shape[1]
                if name in _ENDS:
                    ends[name] = shape[0] * shape[1]
    if not ends:
        raise ValueError(f"got files without {' or '.join(_ENDS)}")
    return Sizes(blocks, next(ends[name] for name in _ENDS if name in ends))


def work(found: Sizes, prompts: Sequence[int], sampled: int, packed: float) -> Work:
    """Of `sampled` tokens, trained in rows of `packed` nodes in all.

    Args:
        prompts: tokens of each; all but its last predict nothing that trains.
    """
    trained = packed - sum(count - 1 for count in prompts)
    return Work(
        # A product takes two operations a number, and so does its way back.
        generation=2.0 * (found.blocks + found.head) * sampled,
        training=4.0 * (found.blocks * packed + found.head * trained),
    )


def bound(
    step: Work, sampler_gflops: float, trainer_gflops: float, whole: float, training: float
) -> dict[str, Any]:
    """The least seconds of a step, and the greatest ratios that they leave.

    Args:
        sampler_gflops, trainer_gflops: of one product of the type that each computes in.
        whole, training: seconds that the other side's step takes, and its training.
    """
    seconds = step.generation / sampler_gflops / 1e9
    back = step.training / trainer_gflops / 1e9
    return {
        **asdict(step),
        "sampler_gflops": sampler_gflops,
        "trainer_gflops": trainer_gflops,
        "generation_seconds": seconds,
        "training_seconds": back,
        "seconds": seconds + back,
        "whole_ratio": whole / (seconds + back),
        "training_ratio": training / back,
        "no_bfloat16": refusal(Products.BFLOAT16, "auto", 1),
    }
