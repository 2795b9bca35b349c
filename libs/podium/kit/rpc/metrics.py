"""What every service shows to Prometheus of the calls that it takes and makes."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

SERVER_HANDLED = Counter(
    "podium_grpc_server_handled_total",
    "Calls that ended, by status code.",
    ("service", "method", "code"),
)
SERVER_SECONDS = Histogram(
    "podium_grpc_server_handling_seconds",
    "Time from a call's first byte to its end.",
    ("service", "method"),
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800),
)
CLIENT_HANDLED = Counter(
    "podium_grpc_client_handled_total",
    "Calls to other services that ended, by status code.",
    ("service", "method", "code"),
)
CERTIFICATE = Gauge(
    "podium_tls_certificate_timestamp_seconds",
    "From when (start) until when (end) the certificate that is shown is valid.",
    ("bound",),
)
