"""Prometheus metrics of the console. `route` is a path's pattern, so that ids make no series."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter(
    "podium_console_requests_total", "HTTP requests by route and status.", ["route", "status"]
)
SECONDS = Histogram(
    "podium_console_request_seconds",
    "Time until the answer of a request begins.",
    ["route"],
    buckets=(0.005, 0.02, 0.1, 0.5, 1, 2.5, 5, 10, 30),
)
STREAMS = Gauge("podium_console_streams", "Pages that are told of changes.")
