"""A step's numbers under the tutorial's names, beside Podium's own."""

from __future__ import annotations

import math
from collections.abc import Mapping

from podium.jobs.v1 import job_service_pb2 as pb

TUTORIAL: Mapping[str, tuple[str, ...]] = {
    "policy_loss": ("train/policy_loss", "train/loss"),
    # Podium's objectives have no value network.
    "value_loss": (),
    "kl_divergence": ("train/kl_reference", "train/kl_loss"),
    "entropy": ("train/entropy",),
    "learning_rate": ("train/learning_rate",),
    "average_reward": ("reward_mean",),
    "success_rate": ("success_mean",),
    "average_episode_length": ("turns_mean",),
}
"""Where each comes from, the first that there is; 0 without any. `epoch` is the step's number."""


def step_scalars(step: pb.Step) -> dict[str, float]:
    """Everything about a step that a tracker plots."""
    metrics = finite(step.metrics)
    named = {
        name: next((metrics[each] for each in sources if each in metrics), 0.0)
        for name, sources in TUTORIAL.items()
    }
    return {"epoch": step.number, **named, **metrics, "version": step.version}


def evaluation_scalars(evaluation: pb.Evaluation) -> dict[str, float]:
    """An evaluation's numbers, under `evaluation/MODE/`."""
    path = f"evaluation/{evaluation.mode}"
    found = {f"{path}/{name}": value for name, value in finite(evaluation.metrics).items()}
    found[f"{path}/episodes"] = evaluation.episodes
    if evaluation.success_high:
        found[f"{path}/success_low"] = evaluation.success_low
        found[f"{path}/success_high"] = evaluation.success_high
    return {"evaluation/version": evaluation.version, **found}


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Without what is no number: not every tracker takes NaN."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}
