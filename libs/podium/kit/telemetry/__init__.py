"""Logs, traces and metrics, set up alike in every service."""

from podium.kit.telemetry.logs import setup_logging
from podium.kit.telemetry.metrics import MetricsServer, start_metrics_server, timed
from podium.kit.telemetry.tracing import (
    Around,
    current_span_id,
    current_trace_id,
    exemplar,
    failed,
    setup_tracing,
    span_of,
    traced,
    tracer,
    unkept,
)

__all__ = [
    "Around",
    "MetricsServer",
    "current_span_id",
    "current_trace_id",
    "exemplar",
    "failed",
    "setup_logging",
    "setup_tracing",
    "span_of",
    "start_metrics_server",
    "timed",
    "traced",
    "tracer",
    "unkept",
]
