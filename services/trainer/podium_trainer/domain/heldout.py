"""Groups that a supervised job measures and does not train on."""

from __future__ import annotations

from collections.abc import Iterable

from podium.core.sft import HELDOUT
from podium.types.v1 import spec_pb2, trajectory_pb2

Groups = list[trajectory_pb2.Group]


def divided(
    groups: Iterable[trajectory_pb2.Group], loss: spec_pb2.LossSpec
) -> tuple[Groups, Groups]:
    """What trains, and what is held out: of OBJECTIVE_SUPERVISED the groups of that split."""
    supervised = loss.objective == spec_pb2.OBJECTIVE_SUPERVISED
    train: Groups = []
    heldout: Groups = []
    for group in groups:
        out = supervised and group.scenario.split == HELDOUT
        (heldout if out else train).append(group)
    return train, heldout
