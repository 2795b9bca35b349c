"""OpenTelemetry traces: always recorded, exported when an endpoint is configured."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from opentelemetry import trace

from podium.kit.telemetry.exporter import span_exporter

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_FLUSH_SECONDS = 3.0

logger = logging.getLogger(__name__)


def tracer(name: str) -> trace.Tracer:
    """The tracer of a module: pass `__name__`."""
    return trace.get_tracer(name)


def current_trace_id() -> str:
    """The current span's W3C trace id, 32 hex digits; empty outside a span."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else ""


def setup_tracing(service: str) -> Callable[[], None]:
    """Makes `podium-<service>` this process's tracer provider.

    The standard OTEL_* variables are respected, the protocol among them (see
    `telemetry.exporter`); without an OTLP endpoint spans exist (so that logs and
    trajectories carry trace ids) but go nowhere.

    Returns:
        A function that sends what is left, for at most three seconds. An
        endpoint that does not answer loses its spans, never the shutdown.

    Raises:
        InvalidArgumentError: a variable is wrong, by its name.
    """
    # Imported here: clients have spans without the SDK.
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider

    attributes = {} if os.environ.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: f"podium-{service}"}
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    exporter = span_exporter()
    if exporter is not None:
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return lambda: _shutdown(provider)


def _shutdown(provider: TracerProvider) -> None:
    thread = threading.Thread(target=provider.shutdown, name="flush-spans", daemon=True)
    thread.start()
    thread.join(_FLUSH_SECONDS)
    if thread.is_alive():
        logger.warning("the OTLP endpoint did not take the last spans in time")
