"""How many steps a job will take, where that is known."""

from __future__ import annotations

from podium.types.v1 import spec_pb2

MAX_STEPS = 1_000_000
"""The contract's greatest `training.steps`: of a client that ends when it likes."""


def total_steps(spec: spec_pb2.JobSpec) -> int:
    """The job's steps; 0 when its client ends it when it likes."""
    if spec.HasField("client") and spec.training.steps >= MAX_STEPS:
        return 0
    return spec.training.steps
