"""The task that both sides learn in the whole-step measurement, and what both are set to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PROMPTS = (
    "Write a short story about a lighthouse keeper who finds a strange bottle on the beach.",
    "Explain to a child how rain is made, and where the water goes after it has fallen.",
    "Describe a busy market in a small town on a warm morning in the middle of the summer.",
    "Tell a friend what you did last weekend, and what you would like to do the next one.",
)
COMMON_ID = 512
"""Token ids below it are the shortest pieces of the vocabulary: bytes and the first merges."""


@dataclass(frozen=True)
class Setup:
    """Both sides, the same."""

    model: str
    """Folder of the base model."""
    steps: int
    target_modules: tuple[str, ...]
    """Linear layers with an adapter."""
    group: int = 8
    """Completions of a prompt."""
    completion: int = 64
    """Tokens of a completion: exactly, whatever the model says about its end."""
    rank: int = 8
    alpha: float = 16
    learning_rate: float = 5e-4
    beta1: float = 0.9
    beta2: float = 0.999
    max_grad_norm: float = 1.0
    epsilon: float = 0.2
    epsilon_high: float = 0.28
    seed: int = 0
    products: str = "torch"
    """Podium's, of frozen weights: `PODIUM_TRAINER_PRODUCTS`."""
    checkpointing: bool = True
    """Whether TRL makes activations twice, as it does by default; Podium does not."""


def reward(tokens: Sequence[int]) -> float:
    """Share of the completion's tokens that are common ones."""
    return sum(token < COMMON_ID for token in tokens) / len(tokens)
