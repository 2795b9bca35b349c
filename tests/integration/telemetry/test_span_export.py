"""Spans that leave a process, which sets its exporter up once."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent import futures
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

_SPANS = """
from podium.kit.telemetry import setup_tracing, tracer
flush = setup_tracing("judge")
with tracer("x").start_as_current_span("score"):
    pass
flush()
print("flushed")
"""


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    return subprocess.run(
        [sys.executable, "-c", _SPANS],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )


class _Collector(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self) -> None:
        self.received: list[Any] = []

    def Export(self, request: Any, context: Any) -> Any:  # gRPC's name
        self.received.extend(request.resource_spans)
        return trace_service_pb2.ExportTraceServiceResponse()


@pytest.mark.parametrize("name", ["", "my-judge"])
def test_spans_reach_an_otlp_endpoint(name: str) -> None:
    collector = _Collector()
    server = grpc.server(futures.ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        extra = {"OTEL_SERVICE_NAME": name} if name else {}
        result = run(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}", **extra)
    finally:
        server.stop(None)
    assert result.stdout == "flushed\n"
    (resource,) = collector.received
    attributes = {a.key: a.value.string_value for a in resource.resource.attributes}
    assert attributes["service.name"] == (name or "podium-judge")
    assert resource.scope_spans[0].spans[0].name == "score"


def test_an_endpoint_that_is_away_holds_nobody_up() -> None:
    result = run(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
    assert result.stdout == "flushed\n"


def test_without_an_endpoint_nothing_is_exported_or_imported() -> None:
    code = _SPANS + "\nimport sys\nassert not [m for m in sys.modules if 'exporter.otlp' in m]"
    clean = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    subprocess.run([sys.executable, "-c", code], env=clean, timeout=200, check=True)
