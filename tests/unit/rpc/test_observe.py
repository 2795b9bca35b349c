"""Spans, metrics and request logs of every kind of call."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from podium.environment.v1 import environment_service_pb2 as env
from podium.kit.rpc import observe
from podium.kit.rpc.metrics import SERVER_HANDLED
from podium.kit.telemetry import attributes, tracer
from podium.registry.v1 import registry_service_pb2 as reg
from prometheus_client import REGISTRY as METRICS
from support.rpc_doubles import ENVIRONMENT, REGISTRY

DIGEST = "sha256:" + "0" * 64


async def unary_unary(served) -> None:
    await served.registry.GetVersion(reg.GetVersionRequest(model="m"))


async def unary_stream(served) -> None:
    async for _ in served.registry.DownloadBlob(reg.DownloadBlobRequest(digest=DIGEST)):
        pass


async def stream_unary(served) -> None:
    async def chunks():
        yield reg.UploadBlobRequest(data=b"x")

    await served.registry.UploadBlob(chunks())


async def stream_stream(served) -> None:
    call = served.environment.Session()
    step = env.StepRequest(action={"role": "ROLE_ASSISTANT"})
    await call.write(env.SessionRequest(step=step))
    await call.read()
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF


KINDS = [
    (unary_unary, REGISTRY, "GetVersion"),
    (unary_stream, REGISTRY, "DownloadBlob"),
    (stream_unary, REGISTRY, "UploadBlob"),
    (stream_stream, ENVIRONMENT, "Session"),
]


def handled(side: str, service: str, method: str, code: str) -> float:
    labels = {"service": service, "method": method, "code": code}
    return METRICS.get_sample_value(f"podium_grpc_{side}_handled_total", labels) or 0.0


async def both_sides(spans, count: int = 2) -> dict[SpanKind, Any]:
    """The client's span and the server's, which may end after the client has its answer."""
    done: list[Any] = []
    while len(done) < count:
        await asyncio.sleep(0.01)  # the exporter has no event to wait for
        done = [s for s in spans.get_finished_spans() if s.kind is not SpanKind.INTERNAL]
    return {span.kind: span for span in done}


@pytest.mark.parametrize(("call", "service", "method"), KINDS)
async def test_one_trace_joins_caller_client_and_server(
    serve, spans, call, service, method
) -> None:
    served = await serve()
    before = handled("server", service, method, "OK"), handled("client", service, method, "OK")
    with tracer("test").start_as_current_span("caller") as caller:
        await call(served)
        assert trace.get_current_span() is caller
    found = await both_sides(spans)
    client, server = found[SpanKind.CLIENT], found[SpanKind.SERVER]
    assert client.parent.span_id == caller.get_span_context().span_id
    assert server.parent.span_id == client.context.span_id
    assert server.context.trace_id == caller.get_span_context().trace_id
    assert server.name == client.name == f"{service}/{method}"
    for span in (client, server):
        assert span.attributes[attributes.RPC_RESPONSE_STATUS_CODE] == "OK"
        assert span.attributes[attributes.RPC_METHOD] == f"{service}/{method}"
        assert span.status.status_code is StatusCode.UNSET
    after = handled("server", service, method, "OK"), handled("client", service, method, "OK")
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1]


@pytest.mark.parametrize(
    ("model", "code", "server_status"),
    [
        ("missing", "NOT_FOUND", StatusCode.UNSET),
        ("by-hand", "OUT_OF_RANGE", StatusCode.UNSET),
        ("defect", "INTERNAL", StatusCode.ERROR),
    ],
)
async def test_the_status_of_an_error_is_recorded(serve, spans, caplog, model, code, server_status):
    served = await serve()
    before = handled("server", REGISTRY, "GetVersion", code)
    client_before = handled("client", REGISTRY, "GetVersion", code)
    with caplog.at_level(logging.INFO, logger=observe.__name__):
        with pytest.raises(grpc.RpcError):
            await served.registry.GetVersion(reg.GetVersionRequest(model=model))
        found = await both_sides(spans)
    assert found[SpanKind.CLIENT].status.status_code is StatusCode.ERROR
    assert found[SpanKind.SERVER].status.status_code is server_status
    for span in found.values():
        assert span.attributes[attributes.RPC_RESPONSE_STATUS_CODE] == code
    assert handled("server", REGISTRY, "GetVersion", code) - before == 1
    assert handled("client", REGISTRY, "GetVersion", code) - client_before == 1
    (record,) = [r for r in caplog.records if r.name == observe.__name__]
    assert record.levelno == logging.INFO
    assert record.getMessage() == f"{REGISTRY}/GetVersion {code}"
    assert record.code == code
    assert record.seconds >= 0
    assert record.peer.startswith("ipv4:127.0.0.1:")


async def test_a_call_that_went_well_is_logged_for_debugging_only(serve, caplog) -> None:
    served = await serve()
    with caplog.at_level(logging.DEBUG, logger=observe.__name__):
        await unary_unary(served)
    (record,) = [r for r in caplog.records if r.name == observe.__name__]
    assert record.levelno == logging.DEBUG


async def test_a_refused_request_is_counted_too(serve, spans) -> None:
    served = await serve()
    before = handled("server", REGISTRY, "GetVersion", "INVALID_ARGUMENT")
    raw = served.channel.unary_unary(f"/{REGISTRY}/GetVersion")
    for request in (b"\xff", b""):
        with pytest.raises(grpc.RpcError):
            await raw(request)
    await both_sides(spans, 4)
    assert handled("server", REGISTRY, "GetVersion", "INVALID_ARGUMENT") - before == 2


@pytest.mark.parametrize(
    ("seconds", "code"), [(2, "DEADLINE_EXCEEDED"), (None, "CANCELLED")], ids=["late", "left"]
)
async def test_a_call_that_was_given_up_is_counted_on_both_sides(serve, spans, seconds, code):
    served = await serve()
    before = {side: handled(side, REGISTRY, "GetVersion", code) for side in ("server", "client")}
    await served.channel.channel_ready()
    call = served.registry.GetVersion(reg.GetVersionRequest(model="hang"), timeout=seconds)
    await served.double.entered.wait()
    if seconds is None:
        call.cancel()
    with pytest.raises((grpc.RpcError, asyncio.CancelledError)):
        await call
    found = await both_sides(spans)
    for span in found.values():
        assert span.attributes[attributes.RPC_RESPONSE_STATUS_CODE] == code
    for side, then in before.items():
        assert handled(side, REGISTRY, "GetVersion", code) - then == 1


async def test_labels_are_bounded_whatever_clients_call(serve) -> None:
    served = await serve()
    for n in range(5):
        with pytest.raises(grpc.RpcError):
            await served.channel.unary_unary(f"/podium.registry.v1.RegistryService/X{n}")(b"")
    methods = {sample.labels["method"] for sample in next(iter(SERVER_HANDLED.collect())).samples}
    assert not [method for method in methods if method.startswith("X")]
