"""Channels where the environment names a proxy that notes what it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from podium.kit.rpc import Server, ServerSettings, connect
from podium.kit.rpc.client import connect_blocking, connect_peer
from podium.local.launcher import health
from podium.registry.v1 import registry_service_pb2 as reg
from podium.registry.v1 import registry_service_pb2_grpc as reg_grpc
from support.rpc_doubles import add_doubles


class Proxy:
    """Refuses all that it is asked for, and knows what that was."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.put_nowait(await reader.readline())
        writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        writer.close()


@pytest.fixture
async def proxy(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxy]:
    made = Proxy()
    listening = await asyncio.start_server(made.take, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    for name in ("grpc_proxy", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, url)
    for name in ("no_grpc_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with listening:
        yield made


async def get(channel: grpc.aio.Channel) -> None:
    async with channel:
        await reg_grpc.RegistryServiceStub(channel).GetVersion(
            reg.GetVersionRequest(model="m"), timeout=10
        )


async def test_nothing_on_this_machine_is_asked_by_a_proxy(proxy: Proxy) -> None:
    server = Server("registry", ServerSettings())
    add_doubles(server)
    await server.start()
    try:
        await get(connect(f"localhost:{server.port}"))
        await get(connect(f"ipv4:127.0.0.1:{server.port},127.0.0.1:{server.port}"))
        with connect_blocking(f"127.0.0.1:{server.port}") as channel:
            ready = grpc.channel_ready_future(channel)
            await asyncio.to_thread(ready.result, 10)
        assert await health.check(f"127.0.0.1:{server.health_port}", "") == "SERVING"
    finally:
        await server.stop(0)
    assert proxy.asked.empty()


async def test_a_far_controller_is_asked_by_it_and_another_service_never(proxy: Proxy) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await get(connect_peer(ServerSettings(), "registry.example.invalid:50052"))
    with pytest.raises(grpc.aio.AioRpcError):
        await get(connect("registry.podium.svc.example.invalid:50052"))
    assert proxy.asked.empty()
    with pytest.raises(grpc.aio.AioRpcError):
        await get(connect("controller.example.invalid:443"))
    assert (await proxy.asked.get()).startswith(b"CONNECT controller.example.invalid:443 ")
