"""Weights that are nothing but a digest of what they were trained on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from podium.types.v1 import trajectory_pb2


def trained_weights(seed: int, steps: Iterable[Sequence[trajectory_pb2.Trajectory]]) -> str:
    """What TrainerDouble publishes after steps on these trajectories, each once and in order."""
    weights = digest_of(seed, "fresh").hex()
    for trajectories in steps:
        weights = learned_from(weights, trajectories)
    return weights


def learned_from(weights: str, trajectories: Sequence[trajectory_pb2.Trajectory]) -> str:
    """The weights after one step."""
    return digest_of(weights, [(t.id, t.reward, *_taught(t)) for t in trajectories]).hex()


def _taught(trajectory: trajectory_pb2.Trajectory) -> list[float]:
    return [x for history in trajectory.histories for x in history.tokens.teacher_logprobs]


def digest_of(*parts: object) -> bytes:
    """32 bytes that are another for any other parts."""
    return hashlib.sha256(repr(parts).encode()).digest()
