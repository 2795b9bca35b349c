"""A job's environments, whether it names one or several."""

from __future__ import annotations

from collections.abc import Sequence

from podium.types.v1 import spec_pb2


def environments_of(spec: spec_pb2.JobSpec) -> Sequence[spec_pb2.WeightedEnvironment]:
    """All of them, the single one with weight 1; none of a job that only a client feeds."""
    if spec.environments or not spec.HasField("environment"):
        return spec.environments
    return [spec_pb2.WeightedEnvironment(environment=spec.environment, weight=1, from_step=1)]


def name_of(environment: spec_pb2.WeightedEnvironment) -> str:
    """As metrics and trajectories have it."""
    return environment.name or environment.environment.name


def title_of(spec: spec_pb2.JobSpec) -> str:
    """For people: `email_search`, `email_search + tic_tac_toe`, or nothing."""
    return " + ".join(map(name_of, environments_of(spec)))


def path_of(spec: spec_pb2.JobSpec, index: int) -> str:
    """Where CreateJob's request has the EnvironmentSpec of one of `environments_of`."""
    if spec.environments:
        return f"job.spec.environments[{index}].environment"
    return "job.spec.environment"
