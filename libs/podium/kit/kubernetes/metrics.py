"""What the client of Kubernetes shows to Prometheus."""

from __future__ import annotations

from prometheus_client import Counter

CALLS = Counter(
    "podium_controller_cluster_calls_total",
    "Calls of the Kubernetes API server; a watch is one.",
    ("method", "resource"),
)
