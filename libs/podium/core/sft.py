"""Supervised fine-tuning: what the client, the controller and the trainer say of it alike."""

from __future__ import annotations

from collections.abc import Sequence

from podium.core.errors import Violation
from podium.types.v1 import spec_pb2, trajectory_pb2

HELDOUT = "heldout"
"""The split of rows that are measured, and not trained on."""

HELDOUT_LOSS = "heldout_loss"
"""The trainer's metric: mean -log p of the held-out rows' tokens, in nats, after the step."""


def takes_any_tokens(spec: spec_pb2.JobSpec, group: trajectory_pb2.Group) -> bool:
    """Whether a job may train on tokens of a group that somebody else sampled, at any time.

    The objective reads no log-prob of a sampler, and the client chooses what to learn from.
    """
    objective = spec.training.loss.objective
    supervised = objective == spec_pb2.OBJECTIVE_SUPERVISED or group.batch_training.supervised
    return supervised and spec.HasField("client")


def are_demonstrations(spec: spec_pb2.JobSpec, groups: Sequence[trajectory_pb2.Group]) -> bool:
    """Whether a step's groups are rows, which nobody sampled for it and nothing scores."""
    return spec.HasField("sft") or bool(groups and groups[0].batch_training.supervised)


def sft_violations(spec: spec_pb2.JobSpec, path: str) -> list[Violation]:
    """What contradicts `sft` in a completed specification; `path` is the specification's."""
    if not spec.HasField("sft"):
        return []
    found = []
    if not spec.HasField("client"):
        text = (
            "got sft without client; its rows come from a client: `podium sft` and train_sft of"
            " the SDK set both"
        )
        found.append(Violation(f"{path}.sft", text))
    objective = spec.training.loss.objective
    if objective != spec_pb2.OBJECTIVE_SUPERVISED:
        name = spec_pb2.Objective.Name(objective)
        text = f"got {name} with sft; allowed is OBJECTIVE_SUPERVISED"
        found.append(Violation(f"{path}.training.loss.objective", text))
    if spec.reward.scorers:
        text = f"got {len(spec.reward.scorers)} with sft, which scores nothing; allowed are none"
        found.append(Violation(f"{path}.reward.scorers", text))
    return found
