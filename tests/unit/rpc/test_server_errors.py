"""What clients are told when something goes wrong, and what they are not."""

from __future__ import annotations

import asyncio
import logging
import re

import grpc
import pytest
from podium.core import errors
from podium.core.errors import Violation
from podium.environment.v1 import environment_service_pb2 as env
from podium.kit.rpc import rpc_errors
from podium.kit.rpc.details import KEY
from podium.registry.v1 import registry_service_pb2 as reg
from support.rpc_doubles import SECRET


def get(model: str) -> reg.GetVersionRequest:
    return reg.GetVersionRequest(model=model)


async def test_a_domain_error_keeps_reason_and_metadata(serve) -> None:
    served = await serve()
    with pytest.raises(errors.NotFoundError) as caught, rpc_errors("registry"):
        await served.registry.GetVersion(get("missing"))
    assert caught.value.reason == "MODEL_NOT_FOUND"
    assert caught.value.metadata == {"model": "x"}
    assert caught.value.message == "there is no model missing"


@pytest.mark.parametrize("model", ["defect", "mixed", "stray", "wrong-type"])
async def test_a_defect_is_masked_with_an_id_that_is_in_the_log(serve, caplog, model) -> None:
    served = await serve()
    with caplog.at_level(logging.ERROR), pytest.raises(grpc.aio.AioRpcError) as caught:
        await served.registry.GetVersion(get(model), timeout=10)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    everything = repr(caught.value) + repr(caught.value.trailing_metadata())
    for leak in (SECRET, "hunter2", "ValueError", "TypeError", "Cancelled", "Traceback"):
        assert leak not in everything
    error_id = re.search(r"error id (\w+)", caught.value.details())[1]
    assert [record for record in caplog.records if getattr(record, "error_id", "") == error_id]
    with pytest.raises(errors.InternalError) as mapped, rpc_errors("registry"):
        raise caught.value
    assert mapped.value.metadata["error_id"] == error_id


async def test_a_task_groups_error_is_the_one_inside(serve) -> None:
    served = await serve()
    with pytest.raises(errors.AbortedError) as caught, rpc_errors("registry"):
        await served.registry.GetVersion(get("group"))
    assert caught.value.reason == "LOST_RACE"


async def test_an_abort_by_hand_passes_unchanged(serve) -> None:
    served = await serve()
    with pytest.raises(errors.OutOfRangeError, match="by hand"), rpc_errors("registry"):
        await served.registry.GetVersion(get("by-hand"))


async def test_an_error_in_the_middle_of_a_stream(serve) -> None:
    served = await serve()
    call = served.registry.DownloadBlob(
        reg.DownloadBlobRequest(digest="sha256:" + "0" * 64, offset=1)
    )
    assert [(await call.read()).offset for _ in range(2)] == [0, 1]
    with pytest.raises(errors.NotFoundError, match="the rest is gone"), rpc_errors("registry"):
        await call.read()


async def test_a_method_that_nobody_wrote_is_unimplemented(serve) -> None:
    served = await serve()
    with pytest.raises(errors.UnimplementedError, match="does not implement"), rpc_errors("r"):
        await served.registry.GetLineage(reg.GetLineageRequest(model="m"))
    unknown = served.channel.unary_unary("/podium.registry.v1.RegistryService/Nope")
    with pytest.raises(errors.UnimplementedError), rpc_errors("registry"):
        await unknown(b"")


async def test_a_wrong_request_names_every_field(serve) -> None:
    served = await serve()
    with pytest.raises(errors.InvalidArgumentError) as caught, rpc_errors("registry"):
        await served.registry.GetVersion(reg.GetVersionRequest(version=-1))
    assert caught.value.violations == (
        Violation("model", "is required; got an empty value"),
        Violation("version", "got -1; allowed are numbers from 0 up"),
    )
    assert served.double.calls == {}, "it reached the servicer"


async def test_every_message_of_a_request_stream_is_checked(serve) -> None:
    served = await serve()

    async def requests():
        yield reg.UploadBlobRequest(data=b"x")
        yield reg.UploadBlobRequest(data=b"x", offset=-5)

    with pytest.raises(errors.InvalidArgumentError) as caught, rpc_errors("registry"):
        await served.registry.UploadBlob(requests())
    assert caught.value.violations[0].field == "offset"

    call = served.environment.Session()
    step = env.StepRequest(action={"role": "ROLE_ASSISTANT"})
    await call.write(env.SessionRequest(step=step))
    assert (await call.read()).step.reward == 1
    await call.write(env.SessionRequest(step=env.StepRequest()))
    with pytest.raises(errors.InvalidArgumentError) as caught, rpc_errors("environment"):
        await call.read()
    assert caught.value.violations == (Violation("step.action", "is required"),)


async def test_a_write_to_a_stream_that_ended_is_no_invalid_state(serve) -> None:
    served = await serve()
    call = served.environment.Session()
    await call.write(env.SessionRequest(close=env.CloseRequest()))
    with pytest.raises(errors.NotFoundError), rpc_errors("environment"):
        await call.read()
    with pytest.raises(errors.UnavailableError, match="ended the stream"), rpc_errors("e"):
        await call.write(env.SessionRequest(close=env.CloseRequest()))


async def test_a_foreign_invalid_state_passes_untouched() -> None:
    with pytest.raises(asyncio.InvalidStateError), rpc_errors("x"):
        asyncio.get_running_loop().create_future().result()


@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream"])
async def test_bytes_that_are_no_message(serve, kind) -> None:
    served = await serve()
    method = {"unary_unary": "GetVersion", "unary_stream": "DownloadBlob"}[kind]
    raw = getattr(served.channel, kind)(f"/podium.registry.v1.RegistryService/{method}")
    call = raw(b"\xff\xff\xff")
    with pytest.raises(errors.InvalidArgumentError) as caught, rpc_errors("registry"):
        await (call if kind == "unary_unary" else call.read())
    assert caught.value.reason == "MALFORMED_REQUEST"
    assert "pars" not in caught.value.message.lower()


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("stream_unary", "podium.registry.v1.RegistryService/UploadBlob"),
        ("stream_stream", "podium.environment.v1.EnvironmentService/Session"),
    ],
)
async def test_bytes_in_a_stream_that_are_no_message(serve, kind, path) -> None:
    served = await serve()

    async def requests():
        yield b"\xff\xff\xff"

    call = getattr(served.channel, kind)(f"/{path}")(requests())
    with pytest.raises(errors.InvalidArgumentError, match="no valid message"), rpc_errors("x"):
        await (call if kind == "stream_unary" else call.read())


@pytest.mark.parametrize("size", [2**20 - 1000, 2**20 + 1000])
async def test_the_message_limit_of_the_server(serve, size) -> None:
    served = await serve(max_message_bytes=2**20)
    request = reg.GetVersionRequest(model="m" * size)
    expected = errors.ResourceExhaustedError if size > 2**20 else errors.InvalidArgumentError
    with pytest.raises(expected) as caught, rpc_errors("registry"):
        await served.registry.GetVersion(request)
    if size > 2**20:
        assert re.search(r"larger than max \(\d+ vs\. 1048576\)", caught.value.message)


async def test_the_message_limit_within_a_stream(serve) -> None:
    served = await serve(max_message_bytes=2**20)

    async def requests():
        yield reg.UploadBlobRequest(data=b"x")
        yield reg.UploadBlobRequest(data=b"x" * 2**21)

    with pytest.raises(errors.ResourceExhaustedError, match="larger than max"), rpc_errors("r"):
        await served.registry.UploadBlob(requests())


async def test_the_message_limit_of_the_client(serve) -> None:
    served = await serve(client={"max_message_bytes": 1024})
    with pytest.raises(errors.ResourceExhaustedError, match="larger than max"), rpc_errors("r"):
        await served.registry.GetVersion(get("m" * 2000))
    assert served.double.calls == {}


async def test_a_hundred_violations_fit_the_trailers_of_a_plain_client(serve) -> None:
    served = await serve()
    digests = [{"path": f"../{'é' * 200}{n}", "digest": "x" * 300} for n in range(500)]
    request = reg.CreateVersionRequest(
        manifest=reg.Manifest(model="m", kind="VERSION_KIND_ADAPTER", files=digests)
    )
    async with grpc.aio.insecure_channel(f"127.0.0.1:{served.server.port}") as channel:
        stub = served.registry.__class__(channel)
        for _ in range(20):  # above the soft limit gRPC refuses at random
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.CreateVersion(request)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert dict(caught.value.trailing_metadata())[KEY]


async def test_more_calls_at_once_than_allowed(serve) -> None:
    served = await serve(max_concurrent_rpcs=1)
    hanging = served.registry.GetVersion(get("hang"))
    await served.double.entered.wait()
    with pytest.raises(errors.ResourceExhaustedError), rpc_errors("registry"):
        await served.registry.GetVersion(get("m"))
    hanging.cancel()
    await served.double.closed.wait()
