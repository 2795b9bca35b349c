"""What a trainable model needs of the place where it trains."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.types.v1 import spec_pb2, trajectory_pb2


@dataclass(frozen=True)
class TrainResult:
    """A step that is committed, and whose version is served."""

    step: int
    metrics: dict[str, float] = field(default_factory=dict)
    """`reward_mean`, the trainer's numbers under `train/`, …"""


class Backend(Protocol):
    """Trains and serves models by name: a Podium installation, or the one in this process.

    Every method raises `podium.core.errors`.
    """

    async def register(self, name: str, spec: spec_pb2.JobSpec) -> str:
        """Makes the model's job, or finds it; returns the OpenAI API's base URL when it serves."""

    async def api_token(self) -> str:
        """The bearer token that the OpenAI API asks for; empty where it asks for none."""

    async def step(self, name: str) -> int:
        """How many steps the model has taken."""

    async def submit(
        self, name: str, groups: Sequence[trajectory_pb2.Group], request_id: str
    ) -> int:
        """Hands over the next step's groups, once; returns the step."""

    async def trained(self, name: str, step: int) -> TrainResult:
        """Waits for a step."""

    async def take(self, key: str) -> list[inference_pb.CapturedCall]:
        """The calls under a rollout's key, oldest first; none when none was made."""

    async def demonstrate(
        self, request: inference_pb.RenderDemonstrationRequest
    ) -> inference_pb.RenderDemonstrationResponse:
        """A whole conversation as tokens, by the chat template of the pool."""

    async def finish(self, name: str) -> None:
        """Has the model's job end as succeeded."""

    async def record(self, name: str, step: int, metrics: Mapping[str, float]) -> None:
        """Adds an evaluation's numbers to a checkpoint."""

    def checkpoints(self, name: str) -> AsyncGenerator[registry_pb.Version, None]:
        """The model's checkpoints, newest first."""

    async def version(self, name: str, which: int | str) -> registry_pb.Version:
        """Reads a checkpoint by number or alias."""

    async def download(self, name: str, step: int, folder: Path) -> None:
        """Writes a checkpoint's adapter, or whole weights, to a folder."""

    async def retain(self, name: str, keep_last: int, keep_best: int, metric: str) -> None:
        """Deletes the checkpoints that the rule does not keep."""


@runtime_checkable
class HasBackend(Protocol):
    """Something that a model can register with, such as a client."""

    @property
    def backend(self) -> Backend:
        """Its backend."""
        ...
