"""The parts of a client whose models train in this process: what is covered, and what is not."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from podium.core.errors import UnimplementedError
from podium.registry.v1 import registry_service_pb2 as pb
from podium.sdk.checkpoints import Checkpoints
from podium.training.backend import Backend


def not_covered(method: str) -> UnimplementedError:
    """The error of a method that needs an installation."""
    return UnimplementedError(
        f"client.{method} is not covered by a backend in this process, which has models and"
        " checkpoints alone; it needs an installation (`podium up` runs one here)",
        reason="NOT_IN_PROCESS",
        metadata={"method": method},
    )


class NotCovered:
    """Stands for a part of the client; each method of that part says that it is not covered."""

    def __init__(self, name: str, part: type) -> None:
        self._name = name
        self._part = part

    def __getattr__(self, method: str) -> Callable[..., NoReturn]:
        if method.startswith("_") or not hasattr(self._part, method):
            raise AttributeError(f"client.{self._name} has no method {method!r}")

        def refuse(*_: Any, **__: Any) -> NoReturn:
            raise not_covered(f"{self._name}.{method}")

        return refuse


class BackendCheckpoints(NotCovered):
    """`Checkpoints` of a backend: all but `models`."""

    def __init__(self, backend: Backend) -> None:
        super().__init__("checkpoints", Checkpoints)
        self._backend = backend

    def list(self, model: str) -> AsyncGenerator[pb.Version, None]:
        """See `Checkpoints`."""
        return self._backend.checkpoints(model)

    async def get(self, model: str, version: int | str = "latest") -> pb.Version:
        """See `Checkpoints`."""
        return await self._backend.version(model, version)

    async def record(self, model: str, version: int, metrics: Mapping[str, float]) -> None:
        """See `Checkpoints`."""
        await self._backend.record(model, version, metrics)

    async def retain(self, model: str, keep_last: int, keep_best: int, metric: str) -> None:
        """See `Checkpoints`."""
        await self._backend.retain(model, keep_last, keep_best, metric)

    async def download(self, version: pb.Version, folder: Path, prefix: str = "") -> None:
        """See `Checkpoints`; the adapter, or whole weights, whatever the prefix."""
        await self._backend.download(version.manifest.model, version.manifest.version, folder)
