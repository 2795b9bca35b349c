"""Scenarios that are nothing but seeds."""

from __future__ import annotations

from collections.abc import Sequence

from podium.environments.types import Scenario

HELDOUT_SEED = 1_000_000
"""Where the held-out ones begin: above every training seed, of which there are fewer."""


def seed_scenarios(split: str, count: int) -> Sequence[Scenario]:
    """`count` of them, the same at every call; those of `train` and the others share no seed."""
    first = 0 if split == "train" else HELDOUT_SEED
    return [Scenario(f"seed-{seed}", {"seed": seed}) for seed in range(first, first + count)]
