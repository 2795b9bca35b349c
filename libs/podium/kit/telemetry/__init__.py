"""Logs, traces and metrics, set up alike in every service."""

from podium.kit.telemetry.logs import setup_logging
from podium.kit.telemetry.metrics import MetricsServer, start_metrics_server
from podium.kit.telemetry.tracing import current_trace_id, setup_tracing, tracer

__all__ = [
    "MetricsServer",
    "current_trace_id",
    "setup_logging",
    "setup_tracing",
    "start_metrics_server",
    "tracer",
]
