"""An environment as a process of its own: `podium env serve`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from podium.environment.v1 import environment_service_pb2_grpc
from podium.environments.base import Environment
from podium.environments.serving.servicer import EnvironmentServicer
from podium.environments.serving.sessions import SessionLimits
from podium.kit.rpc import Server, ServerSettings, run_service


def serve(kind: type[Environment], settings: ServerSettings, limits: SessionLimits) -> None:
    """Serves until SIGTERM or SIGINT."""

    @asynccontextmanager
    async def build(server: Server) -> AsyncIterator[None]:
        servicer = EnvironmentServicer(kind, limits)
        server.add(
            environment_service_pb2_grpc.add_EnvironmentServiceServicer_to_server,
            servicer,
            "podium.environment.v1.EnvironmentService",
        )
        try:
            yield
        finally:
            await servicer.close()

    run_service("environment", settings, build)
