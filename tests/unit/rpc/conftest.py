"""Real servers on free ports of loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from podium.environment.v1 import environment_service_pb2_grpc
from podium.kit.rpc import Server, ServerSettings, connect
from podium.registry.v1 import registry_service_pb2_grpc
from support.rpc_doubles import RegistryDouble, add_doubles
from support.spans import exporter, spans

__all__ = ["exporter", "spans"]


@dataclass
class Served:
    """A running server, its double, and a client of it."""

    server: Server
    double: RegistryDouble
    channel: grpc.aio.Channel

    @property
    def registry(self) -> Any:
        return registry_service_pb2_grpc.RegistryServiceStub(self.channel)

    @property
    def environment(self) -> Any:
        return environment_service_pb2_grpc.EnvironmentServiceStub(self.channel)


Serve = Callable[..., Awaitable[Served]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts a server of doubles; keyword arguments are settings."""
    async with AsyncExitStack() as stack:

        async def start(client: dict[str, Any] | None = None, **settings: Any) -> Served:
            server = Server("registry", ServerSettings(**settings))
            double = add_doubles(server)
            await server.start()
            stack.push_async_callback(server.stop, 0)
            channel = connect(f"127.0.0.1:{server.port}", **(client or {}))
            stack.push_async_callback(channel.close)
            return Served(server, double, channel)

        yield start
