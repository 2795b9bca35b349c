"""Spans leave real processes by the protocol that OpenTelemetry's variables name."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1 import trace_pb2
from support.full import full
from support.otlp import OtlpHttpReceiver, OtlpReceiver
from support.processes import free_port, start_process, wait_for_port
from support.waiting import eventually

_CLIENT = """
import asyncio, sys
from podium.registry.v1 import registry_service_pb2 as pb, registry_service_pb2_grpc as grpc_pb
from podium.kit.rpc import connect
from podium.kit.telemetry import setup_tracing, tracer

async def ask():
    async with connect(sys.argv[1]) as channel:
        with tracer("test").start_as_current_span("look"):
            stub = grpc_pb.RegistryServiceStub(channel)
            await stub.ListVersions(pb.ListVersionsRequest(model="nobody"))

flush = setup_tracing("client")
asyncio.run(ask())
flush()
"""
# A collector's key, as OTEL_EXPORTER_OTLP_HEADERS has it: values are percent-encoded.
_HEADERS = "authorization=Basic%20c2VjcmV0,x-tenant=podium"


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def receiver(request: pytest.FixtureRequest, clean: None) -> Iterator[OtlpReceiver]:
    made = request.param()
    yield made
    made.stop()


async def traced_call(folder: Path, variables: dict[str, str]) -> None:
    """A real registry answers one call of another process; both send their spans."""
    port = free_port()
    environment = {
        "PODIUM_REGISTRY_PORT": str(port),
        "PODIUM_REGISTRY_HEALTH_PORT": "0",
        "PODIUM_REGISTRY_METRICS_PORT": "0",
        "PODIUM_REGISTRY_DRAIN_SECONDS": "1",
        "PODIUM_REGISTRY_DATA_DIR": str(folder / "registry"),
        **variables,
    }
    process = start_process("podium_registry", environment, folder)
    try:
        await wait_for_port(port, process)
        await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", _CLIENT, f"127.0.0.1:{port}"],
            env={**os.environ, **variables},
            timeout=100,
            check=True,
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, (folder / "podium_registry.log").read_text()
    finally:
        process.kill()
        process.wait()


def shape(spans: list[tuple[str, trace_pb2.Span]]) -> set[tuple[str, str, str]]:
    """Each span's service and name, and its parent's name; what is no trace's own."""
    names = {span.span_id: span.name for _, span in spans}
    return {
        (service, span.name, names[span.parent_span_id] if span.parent_span_id else "")
        for service, span in spans
    }


_CALL = "podium.registry.v1.RegistryService/ListVersions"
CONNECTED = {
    ("podium-client", "look", ""),
    ("podium-client", _CALL, "look"),
    ("podium-registry", _CALL, _CALL),
}


@pytest.mark.parametrize(
    ("receiver", "signal_own"),
    [
        (OtlpReceiver, False),
        (OtlpHttpReceiver, True),
        full(OtlpReceiver, True),
        full(OtlpHttpReceiver, False),
    ],
    indirect=["receiver"],
)
async def test_both_protocols_get_the_same_connected_trace(
    receiver: OtlpReceiver, signal_own: bool, tmp_path: Path
) -> None:
    prefix = "OTEL_EXPORTER_OTLP"
    variables = {
        f"{prefix}_PROTOCOL": receiver.protocol,
        f"{prefix}_ENDPOINT": receiver.endpoint,
        f"{prefix}_HEADERS": _HEADERS,
    }
    if signal_own:
        # Those of the signal win, and the endpoint of a signal is taken as it is.
        path = "/v1/traces" if receiver.protocol == "http/protobuf" else ""
        variables = {
            f"{prefix}_PROTOCOL": "http/json",
            f"{prefix}_ENDPOINT": "http://127.0.0.1:1",
            f"{prefix}_TRACES_PROTOCOL": receiver.protocol,
            f"{prefix}_TRACES_ENDPOINT": receiver.endpoint + path,
            f"{prefix}_TRACES_HEADERS": _HEADERS,
        }
    await traced_call(tmp_path, variables)
    # The services have flushed and ended: all is there, and in one trace.
    await eventually(lambda: len(receiver.by_trace()) == 1)
    (spans,) = receiver.by_trace().values()
    assert shape(spans) == CONNECTED
    for headers in receiver.headers():
        assert headers["authorization"] == "Basic c2VjcmV0"
        assert headers["x-tenant"] == "podium"


@pytest.mark.usefixtures("clean")
async def test_a_collector_below_a_path_is_reached_over_http(tmp_path: Path) -> None:
    receiver = OtlpHttpReceiver("/api/public/otel/v1/traces")
    try:
        variables = {
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"{receiver.endpoint}/api/public/otel",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        }
        await traced_call(tmp_path, variables)
        (spans,) = receiver.by_trace().values()
        assert shape(spans) == CONNECTED
    finally:
        receiver.stop()


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    ("variables", "told"),
    [
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_PROTOCOL: got 'http/json'; allowed are grpc, http/protobuf",
        ),
        full(
            {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "HTTP"},
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: got 'HTTP'; allowed are grpc, http/protobuf",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/v1/traces"},
            "OTEL_EXPORTER_OTLP_ENDPOINT: got 'http://collector:4318/v1/traces'; gRPC has no path",
        ),
        full(
            {
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318",
            },
            "OTEL_EXPORTER_OTLP_ENDPOINT: got 'collector:4318'; must be a URL",
        ),
        full({"OTEL_TRACES_EXPORTER": "jaeger"}, "OTEL_TRACES_EXPORTER: got 'jaeger'; allowed are"),
        full({"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}, "OTEL_EXPORTER_OTLP_…: no exporter for grpc"),
        full({"OTEL_EXPORTER_OTLP_COMPRESSION": "zip"}, "OTEL_EXPORTER_OTLP_COMPRESSION"),
    ],
    ids=lambda value: next(iter(value)).lower() if isinstance(value, dict) else "",
)
def test_a_wrong_variable_ends_the_start_by_name(
    variables: dict[str, str], told: str, tmp_path: Path
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "podium_judge"],
        env={
            **os.environ,
            "PODIUM_JUDGE_PORT": "0",
            "PODIUM_JUDGE_HEALTH_PORT": "0",
            "PODIUM_JUDGE_METRICS_PORT": "0",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
            **variables,
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 2
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr
