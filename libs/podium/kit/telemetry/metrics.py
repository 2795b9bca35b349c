"""Prometheus metrics over HTTP, on a port of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from wsgiref.simple_server import WSGIServer

from prometheus_client import REGISTRY, CollectorRegistry, Histogram, start_http_server

from podium.core.errors import UnavailableError
from podium.kit.http_server import end_http_server
from podium.kit.telemetry.tracing import exemplar

_OPEN_METRICS = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8"


@dataclass(frozen=True)
class MetricsServer:
    """A running endpoint; `port` is the real one."""

    port: int
    _server: WSGIServer
    _thread: threading.Thread

    def stop(self) -> None:
        """Ends it; a scrape in progress finishes."""
        end_http_server(self._server)
        self._thread.join(timeout=1)


def start_metrics_server(
    host: str, port: int, registry: CollectorRegistry = REGISTRY
) -> MetricsServer:
    """Serves `registry`, process metrics included, at `http://host:port/metrics`.

    Port 0 takes any free one.

    Raises:
        UnavailableError: the port is taken or the host is not this machine's.
    """
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise UnavailableError(
            f"metrics cannot listen on {host}:{port}: {error.strerror}",
            reason="PORT_UNAVAILABLE",
            metadata={"address": f"{host}:{port}"},
        ) from error
    whole = server.get_app()
    assert whole is not None
    server.set_app(
        lambda environ, start: whole(
            {**environ, "HTTP_ACCEPT": _accepted(environ.get("HTTP_ACCEPT", ""))}, start
        )
    )
    return MetricsServer(server.server_port, server, thread)


@contextmanager
def timed(histogram: Histogram) -> Iterator[None]:
    """Observes the seconds of a block, whatever its end, with the trace as exemplar."""
    began = time.perf_counter()
    try:
        yield
    finally:
        histogram.observe(time.perf_counter() - began, exemplar())


def _accepted(asked: str) -> str:
    """OpenMetrics to who takes it, since exemplars are of that format alone; else plain text.

    Left to itself the library writes underscores for the colons of vLLM's names, which are as
    good there as in plain text, and which vLLM's dashboards look for.
    """
    kinds = [each.split(";")[0].strip().lower() for each in asked.split(",")]
    return _OPEN_METRICS if "application/openmetrics-text" in kinds else "text/plain"
