"""Logs that machines read, spans that leave the process, and metrics over HTTP."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import urllib.request
from concurrent import futures
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace import TracerProvider
from podium.core.errors import UnavailableError
from podium.kit.telemetry import current_trace_id, setup_logging, start_metrics_server
from prometheus_client import CollectorRegistry, Gauge

_SPANS = """
from podium.kit.telemetry import setup_tracing, tracer
flush = setup_tracing("judge")
with tracer("x").start_as_current_span("score"):
    pass
flush()
print("flushed")
"""


@pytest.fixture
def logged():
    """Sets logging up and gives it back as it was."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()

    def start(**options: Any) -> io.StringIO:
        setup_logging("judge", stream=stream, **options)
        return stream

    yield start
    root.handlers[:], level = before[0], before[1]
    root.setLevel(level)


def test_a_json_line_has_the_trace_the_service_and_the_extras(logged) -> None:
    stream = logged(log_format="json")
    with TracerProvider().get_tracer("x").start_as_current_span("s") as span:
        logging.getLogger("podium.x").warning("took %s", "long", extra={"seconds": 3, "é": "ü"})
        trace_id = current_trace_id()
    line = json.loads(stream.getvalue())
    assert line["time"].endswith("+00:00")
    del line["time"]
    assert line == {
        "level": "WARNING",
        "logger": "podium.x",
        "message": "took long",
        "service": "judge",
        "trace_id": trace_id,
        "span_id": f"{span.get_span_context().span_id:016x}",
        "seconds": 3,
        "é": "ü",
    }


def test_a_message_of_several_lines_is_one_json_line_with_its_exception(logged) -> None:
    stream = logged(log_format="json")
    try:
        raise ValueError("a\nb")
    except ValueError:
        logging.getLogger("x").exception("it\nfailed", extra={"object": object()})
    (line,) = stream.getvalue().splitlines()
    record = json.loads(line)
    assert record["message"] == "it\nfailed"
    assert "ValueError: a\nb" in record["exception"]
    assert "trace_id" not in record


def test_text_for_people(logged) -> None:
    stream = logged(log_format="text", level="DEBUG")
    logging.getLogger("podium.x").debug("hello", extra={"step": 3})
    assert stream.getvalue().endswith(" DEBUG podium.x: hello step=3\n")


def test_the_level_holds_and_libraries_are_quiet(logged) -> None:
    stream = logged(level="INFO")
    logging.getLogger("podium.x").debug("no")
    logging.getLogger("httpx").info("no")
    logging.getLogger("podium.x").info("yes")
    assert [line.partition(": ")[2] for line in stream.getvalue().splitlines()] == ["yes"]


def test_setting_up_twice_does_not_log_twice(logged) -> None:
    logged()
    stream = logged()
    logging.getLogger("x").warning("once")
    assert len(stream.getvalue().splitlines()) == 1


def test_outside_a_span_there_is_no_trace_id() -> None:
    assert current_trace_id() == ""


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    return subprocess.run(
        [sys.executable, "-c", _SPANS],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=60,
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
    subprocess.run([sys.executable, "-c", code], env=clean, timeout=60, check=True)


def test_metrics_over_http_and_a_port_that_is_taken() -> None:
    registry = CollectorRegistry()
    Gauge("podium_test_weight_version", "A test's.", registry=registry).set(7)
    server = start_metrics_server("127.0.0.1", 0, registry)
    with pytest.raises(UnavailableError, match=f"127.0.0.1:{server.port}"):
        start_metrics_server("127.0.0.1", server.port, registry)
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=20) as answer:
        assert "podium_test_weight_version 7.0" in answer.read().decode()
    server.stop()
    start_metrics_server("127.0.0.1", server.port, registry).stop()


def test_names_with_colons_reach_a_prometheus_that_prefers_openmetrics() -> None:
    registry = CollectorRegistry()
    Gauge("vllm:running", "A name as vLLM's.", registry=registry).set(1)
    server = start_metrics_server("127.0.0.1", 0, registry)
    asked = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/metrics",
        headers={"Accept": "application/openmetrics-text;version=1.0.0"},
    )
    with urllib.request.urlopen(asked, timeout=20) as answer:
        assert "\nvllm:running 1.0" in answer.read().decode()
    server.stop()
