"""Prometheus metrics over HTTP, on a port of their own."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from wsgiref.simple_server import WSGIServer

from prometheus_client import REGISTRY, CollectorRegistry, start_http_server

from podium.core.errors import UnavailableError


@dataclass(frozen=True)
class MetricsServer:
    """A running endpoint; `port` is the real one."""

    port: int
    _server: WSGIServer
    _thread: threading.Thread

    def stop(self) -> None:
        """Ends it; a scrape in progress finishes."""
        self._server.shutdown()
        self._server.server_close()
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
    # The OpenMetrics format has underscores for the colons of vLLM's names, which its
    # dashboards do not find.
    server.set_app(lambda environ, start: whole({**environ, "HTTP_ACCEPT": "text/plain"}, start))
    return MetricsServer(server.server_port, server, thread)
