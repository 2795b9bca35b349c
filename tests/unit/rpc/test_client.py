"""Deadlines, retries, cancellation and load balancing, against real servers."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from podium.core import errors
from podium.environment.v1 import environment_service_pb2 as env
from podium.kit.rpc import Server, ServerSettings, connect, retry_unavailable, rpc_errors
from podium.kit.rpc.client_config import repeatable, service_config
from podium.registry.v1 import registry_service_pb2 as reg
from podium.registry.v1 import registry_service_pb2_grpc as reg_grpc
from support.descriptors import methods
from support.rpc_doubles import add_doubles


def get(model: str) -> reg.GetVersionRequest:
    return reg.GetVersionRequest(model=model)


async def test_a_unary_call_has_a_deadline_that_the_server_knows(serve) -> None:
    # The server must have entered it by then, which may take longer on a machine that is busy.
    for seconds in (0.1, 1, 10):
        served = await serve(client={"default_timeout": seconds})
        await served.channel.channel_ready()
        with (
            pytest.raises(errors.DeadlineExceededError, match="registry did not answer in time"),
            rpc_errors("registry"),
        ):
            await served.registry.GetVersion(get("hang"))
        if served.double.entered.is_set():
            break
    await served.double.closed.wait()
    await served.registry.GetVersion(get("m"), timeout=20)
    assert 15 < served.double.seconds_left[-1] < 21


async def test_a_stream_of_responses_has_none_but_its_own(serve) -> None:
    served = await serve(client={"default_timeout": 0.3})
    watch = served.registry.WatchVersions(reg.WatchVersionsRequest())
    await watch.read()
    assert served.double.seconds_left[-1] is None
    watch.cancel()
    watch = served.registry.WatchVersions(reg.WatchVersionsRequest(), timeout=0.3)
    with pytest.raises(errors.DeadlineExceededError), rpc_errors("registry"):
        async for _ in watch:
            pass


async def test_an_idempotent_method_is_repeated_while_unavailable(serve) -> None:
    served = await serve()
    await served.registry.GetVersion(get("third-time"))
    assert served.double.calls["GetVersion"] == 3


async def test_another_method_is_not(serve) -> None:
    served = await serve()
    manifest = reg.Manifest(
        model="m",
        kind="VERSION_KIND_ADAPTER",
        files=[{"path": "a", "digest": "sha256:" + "0" * 64}],
    )
    with pytest.raises(errors.UnavailableError) as caught, rpc_errors("registry"):
        await served.registry.CreateVersion(reg.CreateVersionRequest(manifest=manifest))
    assert served.double.calls["CreateVersion"] == 1
    assert caught.value.reason == "NO_DISK"
    assert caught.value.metadata == {"disk": "1", "peer": "registry"}


def test_retries_are_those_of_the_contract() -> None:
    expected = {
        (method.containing_service.full_name, method.name)
        for method in methods()
        if repeatable(method)
    }
    (config,) = service_config()["methodConfig"]
    assert {(name["service"], name["method"]) for name in config["name"]} == expected
    assert ("podium.registry.v1.RegistryService", "GetVersion") in expected
    assert ("podium.registry.v1.RegistryService", "CreateVersion") not in expected
    assert config["retryPolicy"]["retryableStatusCodes"] == ["UNAVAILABLE"]


async def test_a_unary_call_is_one_task(serve) -> None:
    served = await serve()
    await served.registry.GetVersion(get("m"))
    loop, made = asyncio.get_running_loop(), []

    def factory(loop, coroutine, **named):
        made.append(coroutine.__qualname__)
        return asyncio.Task(coroutine, loop=loop, **named)

    loop.set_task_factory(factory)
    try:
        await served.registry.GetVersion(get("m"))
    finally:
        loop.set_task_factory(None)
    # Those of gRPC's interceptors would be about the call's own.
    assert [name for name in made if "Call" in name] == ["UnaryUnaryCall._invoke"]


async def test_what_the_caller_says_of_a_unary_call_is_kept(serve) -> None:
    served = await serve(client={"token": "t"})
    said = (("a", "1"), ("a", "2"))
    await served.registry.GetVersion(get("m"), metadata=said, timeout=20, wait_for_ready=True)
    given = [pair for pair in served.double.metadata[-1] if pair[0] in ("a", "authorization")]
    assert sorted(given) == [("a", "1"), ("a", "2"), ("authorization", "Bearer t")]


async def test_cancelling_the_caller_reaches_the_servicer(serve) -> None:
    served = await serve()

    async def call() -> None:
        with rpc_errors("registry"):
            await served.registry.GetVersion(get("hang"))

    task = asyncio.create_task(call())
    await served.double.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(served.double.closed.wait(), 10)


async def test_leaving_a_stream_closes_the_servicers_generator(serve) -> None:
    served = await serve()
    watch = served.registry.WatchVersions(reg.WatchVersionsRequest())
    async for change in watch:
        assert change.sequence == 1
        break
    watch.cancel()
    await asyncio.wait_for(served.double.closed.wait(), 10)


async def test_all_four_kinds_of_calls(serve) -> None:
    served = await serve()

    async def chunks():
        yield reg.UploadBlobRequest(data=b"ab")
        yield reg.UploadBlobRequest(data=b"c")

    assert (await served.registry.GetVersion(get("m"))).version.manifest_digest == "sha256:0"
    assert (await served.registry.UploadBlob(chunks())).persisted_size == 3
    download = served.registry.DownloadBlob(reg.DownloadBlobRequest(digest="sha256:" + "0" * 64))
    assert [chunk.offset async for chunk in download] == [0, 1]
    session = served.environment.Session()
    for number in (1, 2):
        step = env.StepRequest(action={"role": "ROLE_ASSISTANT"})
        await session.write(env.SessionRequest(step=step))
        assert (await session.read()).step.reward == number
    await session.done_writing()
    assert await session.read() is grpc.aio.EOF
    assert await session.code() is grpc.StatusCode.OK


async def test_a_service_that_comes_back_on_its_port_is_found_again(serve) -> None:
    served = await serve()
    await served.registry.GetVersion(get("m"))
    await served.server.stop(0)
    waits: list[float] = []
    again = Server("registry", ServerSettings(port=served.server.port))
    add_doubles(again)

    async def call() -> reg.GetVersionResponse:
        with rpc_errors("registry"):
            return await served.registry.GetVersion(get("m"))

    second_wait = asyncio.Event()

    def on_wait(error: errors.UnavailableError, seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            second_wait.set()

    async def restart() -> None:
        await second_wait.wait()
        await again.start()

    restarting = asyncio.create_task(restart())
    answer = await retry_unavailable(call, timeout_s=60, on_wait=on_wait)
    await restarting
    assert answer.version.manifest_digest == "sha256:0"
    assert len(waits) >= 2
    await again.stop(0)


async def test_retry_gives_the_last_error_when_the_time_is_over() -> None:
    tries = []

    async def away() -> None:
        tries.append(None)
        raise errors.UnavailableError(f"try {len(tries)}")

    with pytest.raises(errors.UnavailableError, match=r"try ([2-9]|\d\d)"):
        await retry_unavailable(away, timeout_s=0.05)

    async def wrong() -> None:
        tries.append(None)
        raise errors.NotFoundError("no")

    tries.clear()
    with pytest.raises(errors.NotFoundError):
        await retry_unavailable(wrong, timeout_s=10)
    assert len(tries) == 1


async def test_calls_are_spread_over_every_address(serve) -> None:
    first, second = await serve(), await serve()
    target = f"ipv4:127.0.0.1:{first.server.port},127.0.0.1:{second.server.port}"
    async with connect(target) as channel:
        stub = reg_grpc.RegistryServiceStub(channel)
        while len(first.double.calls) + len(second.double.calls) < 2:
            await stub.GetVersion(get("m"))
        before = first.double.calls["GetVersion"], second.double.calls["GetVersion"]
        for _ in range(10):
            await stub.GetVersion(get("m"))
    after = first.double.calls["GetVersion"], second.double.calls["GetVersion"]
    assert [now - then for now, then in zip(after, before, strict=True)] == [5, 5]


async def test_connections_grow_old_and_calls_do_not_notice(serve) -> None:
    served = await serve(max_connection_age_seconds=0.2, max_connection_age_grace_seconds=30)
    while len(set(served.double.peers)) < 2:
        await served.registry.GetVersion(get("m"))
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("address", ["", "host", ":50051", "host:", "host:0", "host:x", "h:70000"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="allowed is host:port"):
        connect(address)
