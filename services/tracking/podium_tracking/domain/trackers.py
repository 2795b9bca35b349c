"""The trackers, and the port behind which each is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2, trajectory_pb2

TRACKERS = ("wandb", "langfuse", "mlflow", "openpipe")

VARIABLES: Mapping[str, tuple[str, ...]] = {
    "wandb": ("WANDB_API_KEY", "WANDB_BASE_URL"),
    "langfuse": (
        "LANGFUSE_PUBLIC_KEY",
        "LANGFUSE_SECRET_KEY",
        "LANGFUSE_HOST",
        "LANGFUSE_BASE_URL",
    ),
    "mlflow": (
        "MLFLOW_TRACKING_URI",
        "MLFLOW_TRACKING_USERNAME",
        "MLFLOW_TRACKING_PASSWORD",
        "MLFLOW_TRACKING_TOKEN",
    ),
    "openpipe": ("OPENPIPE_API_KEY", "OPENPIPE_BASE_URL"),
}
"""What a secret may hold for each, named as the tracker's own client reads it."""

NEEDED: Mapping[str, tuple[str, ...]] = {
    "wandb": ("WANDB_API_KEY",),
    "langfuse": ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"),
    "mlflow": ("MLFLOW_TRACKING_URI",),
    "openpipe": ("OPENPIPE_API_KEY",),
}


class TrackerError(Exception):
    """A tracker did not take something; it is tried again later."""


@dataclass(frozen=True)
class Delivered:
    """What a tracker already has of a job."""

    sequence: int = 0
    """The last event of the job that it was told."""
    step: int = 0
    """The last step that it was told."""
    finished: bool = False
    """Whether it has been told the job's end."""


class Tracker(Protocol):
    """One tracker, told of one job; every method blocks, and may raise anything."""

    episodes_at: Literal["step", "end", "never"]
    """When it is told episodes: with the step that trained on them, all at the job's end, never."""

    def open(self, job: pb.Job) -> Delivered:
        """Begins, or goes on where an earlier process was."""

    def has(self, trajectory_id: str) -> bool:
        """Whether it has an episode; asked where episodes are told by step."""

    def episodes(self, step: int, chunk: Sequence[trajectory_pb2.Trajectory]) -> None:
        """Some episodes; those that it has already change nothing."""

    def step(self, sequence: int, step: pb.Step) -> None:
        """A committed step, after its episodes."""

    def evaluation(self, sequence: int, evaluation: pb.Evaluation) -> None:
        """A version's evaluation."""

    def finish(self, job: pb.Job) -> None:
        """The job's end, after everything else. Idempotent."""

    def close(self) -> None:
        """Sends what is left and lets go."""


def asked(spec: spec_pb2.JobSpec) -> list[str]:
    """The trackers that a job names."""
    return [name for name in TRACKERS if spec.tracking.HasField(name)]  # type: ignore[arg-type]


def secret_of(spec: spec_pb2.TrackingSpec, tracker: str) -> str:
    """The secret that a job names for a tracker; empty for the service's own variables."""
    return str(getattr(spec, tracker).secret)


def is_offline(spec: spec_pb2.TrackingSpec, tracker: str) -> bool:
    """Whether nothing is sent, so that no key is needed."""
    return tracker == "wandb" and spec.wandb.mode == spec_pb2.WANDB_MODE_OFFLINE
