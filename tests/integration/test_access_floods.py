"""Calls that nobody vouched for, at the real registry: they hold no place and no memory."""

from __future__ import annotations

import asyncio
import collections
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from podium.kit.rpc import connect
from podium.kit.rpc.details import decode
from podium.registry.v1 import registry_service_pb2 as pb
from podium.registry.v1 import registry_service_pb2_grpc as pb_grpc
from support.descriptors import silence
from support.registry_service import RegistryService

TOKEN = "correct-horse"
SERVICE = "/podium.registry.v1.RegistryService"
MANY = 1200
MIB = 1 << 20

pytestmark = pytest.mark.timeout(240)


@asynccontextmanager
async def running(folder: Path, *, auth: bool = True, **settings: object):
    """The registry, which asks for a token unless told otherwise."""
    if auth:
        tokens = folder / "tokens"
        tokens.write_text(f"{TOKEN}\n")
        settings["auth_tokens_file"] = tokens
    service = RegistryService(folder / "registry", **settings)
    await service.start()
    try:
        yield service
    finally:
        await service.stop()


@asynccontextmanager
async def silent_calls(
    service: RegistryService, count: int, token: str = ""
) -> AsyncIterator[list[grpc.aio.StreamUnaryCall]]:
    """Calls whose headers come and whose message never does."""
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    async with grpc.aio.insecure_channel(service.address) as channel:
        method = channel.stream_unary(f"{SERVICE}/ListModels")
        yield [method(silence(), metadata=metadata) for _ in range(count)]


async def codes(calls: list[grpc.aio.StreamUnaryCall]) -> collections.Counter[grpc.StatusCode]:
    """How they ended."""
    return collections.Counter(await asyncio.gather(*(call.code() for call in calls)))


async def works(service: RegistryService, token: str) -> None:
    """A user's ordinary call."""
    async with connect(service.address, token=token) as channel:
        await pb_grpc.RegistryServiceStub(channel).ListModels(pb.ListModelsRequest())


def peak_mib(pid: int) -> int:
    """The most memory that a process has had so far."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


async def test_silent_calls_without_a_token_hold_no_place(tmp_path: Path) -> None:
    async with running(tmp_path) as service, silent_calls(service, MANY) as calls:
        ended = await asyncio.wait_for(codes(calls), 120)
        assert ended == {grpc.StatusCode.UNAUTHENTICATED: MANY}
        await works(service, TOKEN)


async def test_where_anybody_may_call_silent_calls_hold_none_either(tmp_path: Path) -> None:
    async with running(tmp_path, auth=False) as service, silent_calls(service, MANY) as calls:
        waiting = [asyncio.create_task(call.code()) for call in calls]
        # More wait than there is room for: that some were sent away says that all have come.
        done, _ = await asyncio.wait(waiting, timeout=120, return_when=asyncio.FIRST_COMPLETED)
        assert done
        assert {await task for task in done} == {grpc.StatusCode.DEADLINE_EXCEEDED}
        for _ in range(5):
            await works(service, "")
        for task in waiting:
            task.cancel()


async def test_who_has_a_token_and_says_nothing_is_sent_away(tmp_path: Path) -> None:
    async with (
        running(tmp_path, first_message_seconds=0.5) as service,
        silent_calls(service, 3, TOKEN) as calls,
    ):
        assert await asyncio.wait_for(codes(calls), 120) == {grpc.StatusCode.DEADLINE_EXCEEDED: 3}
        for call in calls:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            told = decode(caught.value)
            assert told is not None
            assert told.reason == "FIRST_MESSAGE_LATE"


async def test_large_messages_without_a_token_take_no_memory(tmp_path: Path) -> None:
    file = pb.File(path="a" * 100, digest="sha256:" + "0" * 64, size=1)
    one = pb.CreateVersionRequest(manifest=pb.Manifest(files=[file])).SerializeToString()
    body = one * (60 * MIB // len(one))  # merged by protobuf into one long list
    async with running(tmp_path) as service:
        await works(service, TOKEN)
        before = peak_mib(service.pid)
        options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        ended = set()
        for _ in range(3):
            channels = [grpc.aio.insecure_channel(service.address, options) for _ in range(4)]
            calls = [channel.unary_unary(f"{SERVICE}/CreateVersion")(body) for channel in channels]
            ended |= set(await asyncio.wait_for(codes(calls), 120))
            for channel in channels:
                await channel.close()
        assert ended == {grpc.StatusCode.UNAUTHENTICATED}
        await works(service, TOKEN)
        assert peak_mib(service.pid) - before < 300


async def test_a_message_that_its_method_does_not_need_so_large_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as service, connect(service.address, token=TOKEN) as channel:
        stub = pb_grpc.RegistryServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetVersion(pb.GetVersionRequest(model="m" * 5 * MIB))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_watches_of_one_user_lock_out_nobody_s_work(tmp_path: Path) -> None:
    async with running(tmp_path) as service, connect(service.address, token=TOKEN) as channel:
        stub = pb_grpc.RegistryServiceStub(channel)
        watches = [stub.WatchVersions(pb.WatchVersionsRequest()) for _ in range(MANY)]
        refused = [asyncio.create_task(watch.code()) for watch in watches]
        done: set[asyncio.Task[grpc.StatusCode]] = set()
        async with asyncio.timeout(120):
            while len(done) < MANY - 512:
                done, _ = await asyncio.wait(refused, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.sleep(0.05)
        assert {await task for task in done} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        await works(service, TOKEN)
        for watch in watches:
            watch.cancel()
