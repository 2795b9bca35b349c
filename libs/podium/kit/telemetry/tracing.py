"""OpenTelemetry traces: spans have ids always, and are built when an endpoint is configured."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.util.types import AttributeValue

import podium
from podium.kit.telemetry import attributes, content
from podium.kit.telemetry.exporter import check_sampler, sampler_is_named, span_exporter

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

_FLUSH_SECONDS = 3.0
_TRACE_ID = re.compile("[0-9a-f]{32}")
_SPAN_ID = re.compile("[0-9a-f]{16}")

logger = logging.getLogger(__name__)


def tracer(name: str) -> trace.Tracer:
    """The tracer of a module: pass `__name__`."""
    return trace.get_tracer(name)


def current_trace_id() -> str:
    """The current span's W3C trace id, 32 hex digits; empty outside a span."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else ""


def current_span_id() -> str:
    """The current span's id, 16 hex digits; empty where there is none that anybody keeps."""
    context = trace.get_current_span().get_span_context()
    kept = context.is_valid and context.trace_flags.sampled
    return f"{context.span_id:016x}" if kept else ""


def exemplar() -> dict[str, str] | None:
    """The current trace for a histogram's exemplar; None where nobody keeps it."""
    context = trace.get_current_span().get_span_context()
    kept = context.is_valid and context.trace_flags.sampled
    return {"trace_id": f"{context.trace_id:032x}"} if kept else None


def unkept() -> trace.Span | None:
    """The current span where nobody keeps its trace; None where somebody does, or there is none.

    It stands for all that would be below it: no sampler that there is (see `telemetry.exporter`)
    keeps a part of a trace, and what is made only to be dropped costs too.
    """
    span = trace.get_current_span()
    context = span.get_span_context()
    return span if context.is_valid and not context.trace_flags.sampled else None


def span_of(trace_id: str, span_id: str) -> trace.SpanContext | None:
    """A span that others stored by its ids; None for what are none, as clients may send."""
    if not (_TRACE_ID.fullmatch(trace_id) and _SPAN_ID.fullmatch(span_id)):
        return None
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    context = trace.SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=flags
    )
    return context if context.is_valid else None


def traced(
    made_by: trace.Tracer,
    name: str,
    given: Mapping[str, AttributeValue] | None = None,
    *,
    kind: trace.SpanKind = trace.SpanKind.INTERNAL,
    root: bool = False,
) -> AbstractContextManager[trace.Span]:
    """A span around a block, that begins now. What the block raises is told by its type alone.

    A message or a traceback may hold what an environment, an agent or a user said, and that is
    no span's to tell unasked.

    Args:
        given: attributes of the span.
        root: begins a trace, linked to the span outside the block if there is one.
    """
    if not root:
        if (dropped := unkept()) is not None:
            return nullcontext(dropped)
        return Around(made_by.start_span(name, None, kind, given))
    outside = trace.get_current_span().get_span_context()
    links = [trace.Link(outside)] if outside.is_valid else []
    return Around(made_by.start_span(name, Context(), kind, given, links))


class Around:
    """Ends a span with the block, in which it is the current one.

    By hand: `trace.use_span` costs a tenth of a span, and a generator as much again.
    """

    __slots__ = ("_span", "_token")

    def __init__(self, span: trace.Span) -> None:
        """The span has begun."""
        self._span = span

    def __enter__(self) -> trace.Span:
        self._token = attach(trace.set_span_in_context(self._span))
        return self._span

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Who is cancelled, or ended early, has not failed.
        if isinstance(error, Exception):
            failed(self._span, error)
        detach(self._token)
        self._span.end()


def failed(span: trace.Span, error: BaseException) -> None:
    """Says on a span what it failed with; an error's `cause` is what happened."""
    kind = type(getattr(error, "cause", error)).__name__
    span.set_attribute(attributes.ERROR_TYPE, kind)
    span.set_status(trace.StatusCode.ERROR, kind)


def setup_tracing(service: str) -> Callable[[], None]:
    """Makes `podium-<service>` this process's tracer provider.

    The standard OTEL_* variables are respected, the protocol among them (see
    `telemetry.exporter`). Without an OTLP endpoint spans have ids, for logs and
    trajectories, and nothing else: none is built, and nobody is told to keep one.

    Returns:
        A function that sends what is left, for at most three seconds. An
        endpoint that does not answer loses its spans, never the shutdown.

    Raises:
        InvalidArgumentError: a variable is wrong, by its name.
    """
    # Imported here: clients have spans without the SDK.
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

    content.check()
    check_sampler()
    exporter = span_exporter()
    if exporter is None:
        provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    else:
        provider = _exporting(service, exporter)
    trace.set_tracer_provider(provider)
    return lambda: _shutdown(provider)


def _exporting(service: str, exporter: SpanExporter) -> TracerProvider:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ParentBased

    from podium.kit.telemetry.light_spans import LightTracerProvider, limited
    from podium.kit.telemetry.sampler import SpanBudget
    from podium.kit.telemetry.span_queue import SpanQueue

    queue = SpanQueue(exporter)
    # Without one of ours the SDK takes that of the variable.
    budget = None if sampler_is_named() else SpanBudget(lambda: queue.put_in)
    sampler = ParentBased(budget) if budget else None
    if limited():
        provider = TracerProvider(sampler, _resource(service), shutdown_on_exit=False)
    else:
        provider = LightTracerProvider(sampler, _resource(service), queue.put)
    if budget:
        provider.add_span_processor(budget)
    provider.add_span_processor(queue)
    return provider


def _resource(service: str) -> Resource:
    """What runs here; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES add to it, and win."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    own = Resource.create(
        {
            attributes.SERVICE_NAME: f"podium-{service}",
            attributes.SERVICE_VERSION: podium.__version__,
            attributes.SERVICE_INSTANCE_ID: f"{socket.gethostname()}-{os.getpid()}",
        }
    )
    return own.merge(OTELResourceDetector().detect())


def _shutdown(provider: TracerProvider) -> None:
    thread = threading.Thread(target=provider.shutdown, name="flush-spans", daemon=True)
    thread.start()
    thread.join(_FLUSH_SECONDS)
    if thread.is_alive():
        logger.warning("the OTLP endpoint did not take the last spans in time")
