"""What a collector answers is nobody's burden, whatever it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from podium.core.errors import InvalidArgumentError
from podium.kit.telemetry.exporter import span_exporter

ANSWERS = {
    "/endless": b"HTTP/1.1 200 OK\r\n\r\n",
    "/chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    "/great": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
    "/short": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "/elsewhere": b"HTTP/1.1 307 No\r\nLocation: /short\r\nContent-Length: 0\r\n\r\n",
    "/no": b"HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n",
}


class Hostile(BaseHTTPRequestHandler):
    paths: list[str]
    left: threading.Event

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.paths.append(self.path)
        self.close_connection = True
        with suppress(OSError):
            self.wfile.write(ANSWERS[self.path])
            while self.path in ("/endless", "/chunks", "/great"):
                self.wfile.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        self.left.set()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def hostile() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    Hostile.paths, Hostile.left = [], threading.Event()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("path", ANSWERS)
def test_an_answer_without_end_is_not_read(
    hostile: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    Hostile.paths.clear()
    Hostile.left.clear()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
    address = f"http://127.0.0.1:{hostile.server_port}{path}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", address)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    exporter = span_exporter()
    assert exporter is not None
    span = TracerProvider().get_tracer("t").start_span("x")
    span.end()
    expected = SpanExportResult.FAILURE if path == "/no" else SpanExportResult.SUCCESS
    assert exporter.export([span]) is expected
    # Who would go on without end is left at once, and nobody is sent on.
    assert Hostile.left.wait(60)
    assert set(Hostile.paths) == {path}
    exporter.shutdown()


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_an_endpoint_that_is_no_url_is_refused_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://[::1")
    with pytest.raises(InvalidArgumentError) as refused:
        span_exporter()
    (violation,) = refused.value.violations
    assert violation.field == "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    assert "got 'http://[::1'; it is no URL" in violation.description
