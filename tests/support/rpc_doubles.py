# the methods are named by gRPC
"""Test doubles of two services, between them with all four kinds of calls.

What a call does is chosen by its request, so that tests need no state.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from podium.core.errors import AbortedError, NotFoundError, UnavailableError
from podium.environment.v1 import environment_service_pb2 as env
from podium.environment.v1 import environment_service_pb2_grpc as env_grpc
from podium.kit.rpc import Server
from podium.registry.v1 import registry_service_pb2 as reg
from podium.registry.v1 import registry_service_pb2_grpc as reg_grpc

REGISTRY = "podium.registry.v1.RegistryService"
ENVIRONMENT = "podium.environment.v1.EnvironmentService"
SECRET = "postgres://admin:hunter2@db"


class RegistryDouble(reg_grpc.RegistryServiceServicer):
    """A registry without a store."""

    def __init__(self, server: Server | None = None) -> None:
        self.server = server
        self.calls: dict[str, int] = {}
        self.seconds_left: list[float | None] = []
        self.peers: list[str] = []
        self.metadata: list[list[tuple[str, Any]]] = []
        self.closed = asyncio.Event()
        self.entered = asyncio.Event()

    def _count(self, name: str, context: Any) -> int:
        self.seconds_left.append(context.time_remaining())
        self.peers.append(context.peer())
        self.metadata.append(list(context.invocation_metadata() or ()))
        self.entered.set()
        self.calls[name] = self.calls.get(name, 0) + 1
        return self.calls[name]

    async def GetVersion(self, request: Any, context: Any) -> Any:
        """`model` chooses: raise, hang, wait for the drain, or answer."""
        tries = self._count("GetVersion", context)
        match request.model:
            case "missing":
                raise NotFoundError(
                    "there is no model missing", reason="MODEL_NOT_FOUND", metadata={"model": "x"}
                )
            case "defect":
                raise ValueError(SECRET)
            case "group":
                async with asyncio.TaskGroup() as group:
                    group.create_task(_lost_race())
            case "mixed":
                raise ExceptionGroup("two", [AbortedError("one"), ValueError(SECRET)])
            case "stray":
                task = asyncio.create_task(asyncio.sleep(60))
                task.cancel()
                await task
            case "third-time":
                if tries < 3:
                    raise UnavailableError("warming up")
            case "hang":
                try:
                    await asyncio.sleep(60)
                finally:
                    self.closed.set()
            case "until-drain":
                assert self.server is not None
                await self.server.draining.wait()
            case "wrong-type":
                return 7
            case "by-hand":
                await context.abort(_code("OUT_OF_RANGE"), "by hand")
        return reg.GetVersionResponse(version=reg.Version(manifest_digest="sha256:0"))

    async def CreateVersion(self, request: Any, context: Any) -> Any:
        """Is always away."""
        self._count("CreateVersion", context)
        raise UnavailableError("no disk yet", reason="NO_DISK", metadata={"disk": "1"})

    async def UploadBlob(self, request_iterator: AsyncIterator[Any], context: Any) -> Any:
        """Counts bytes."""
        self._count("UploadBlob", context)
        size = 0
        async for request in request_iterator:
            size += len(request.data)
        return reg.UploadBlobResponse(persisted_size=size)

    async def DownloadBlob(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Two chunks, then a missing one, when the offset is not 0."""
        self._count("DownloadBlob", context)
        for offset in (0, 1):
            yield reg.DownloadBlobResponse(offset=offset, data=b"x")
        if request.offset:
            raise NotFoundError("the rest is gone")

    async def WatchVersions(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """One change, then silence."""
        self._count("WatchVersions", context)
        try:
            yield reg.WatchVersionsResponse(sequence=1)
            await asyncio.sleep(60)
        finally:
            self.closed.set()


class EnvironmentDouble(env_grpc.EnvironmentServiceServicer):
    """An environment that answers every step with its number as the reward."""

    async def Session(
        self, request_iterator: AsyncIterator[Any], context: Any
    ) -> AsyncIterator[Any]:
        """One response a request."""
        steps = 0
        async for request in request_iterator:
            if request.HasField("close"):
                raise NotFoundError("nothing to close")
            steps += 1
            yield env.SessionResponse(step=env.StepResponse(reward=steps))


def add_doubles(server: Server) -> RegistryDouble:
    """Adds both to a server."""
    registry = RegistryDouble(server)
    server.add(reg_grpc.add_RegistryServiceServicer_to_server, registry, REGISTRY)
    server.add(env_grpc.add_EnvironmentServiceServicer_to_server, EnvironmentDouble(), ENVIRONMENT)
    return registry


async def _lost_race() -> None:
    raise AbortedError("lost", reason="LOST_RACE")


def _code(name: str) -> Any:
    import grpc

    return grpc.StatusCode[name]
