"""Spans wait in a bounded queue for a thread that exports them; what is lost is counted.

Whoever ends a span waits for nobody: a collector that is slow or away costs the oldest spans.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from podium.kit.telemetry import content
from podium.kit.telemetry.light_spans import LightSpan
from podium.kit.telemetry.span_metrics import SPANS

_QUEUE = 16_384
"""Some seconds of a rollout service with a thousand episodes."""
_QUEUE_WITH_CONTENT = 2_048
_BATCH_WITH_CONTENT = 64
"""A span has two attributes of 16 KiB at most; collectors take 4 MiB a request."""


class SpanQueue(SpanProcessor):
    """OpenTelemetry's batch processor, with its losses counted."""

    def __init__(self, exporter: SpanExporter) -> None:
        """OTEL_BSP_… win over what is set here."""
        size, batch = _QUEUE, None
        if content.wanted():
            size, batch = _QUEUE_WITH_CONTENT, _BATCH_WITH_CONTENT
        if os.environ.get("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "").strip():
            batch = None
        self._size = _variable("OTEL_BSP_MAX_QUEUE_SIZE", size)
        self._counted = _Counted(exporter)
        self._queue = BatchSpanProcessor(self._counted, self._size, max_export_batch_size=batch)
        self._lock = threading.Lock()
        self._waiting = 0
        """That were put in, less those that fell out; the exporter knows how many it took."""
        self.put_in = 0
        """Spans until now, those that fell out too."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to do."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queues a span that is kept."""
        context = span.get_span_context()
        if context is not None and context.trace_flags.sampled:
            self.put(span)

    def put(self, span: ReadableSpan | LightSpan) -> None:
        """Queues a span, whoever made it."""
        with self._lock:
            self.put_in += 1
            if self._waiting - self._counted.taken >= self._size:
                SPANS.labels("dropped").inc()
            else:
                self._waiting += 1
        self._queue.on_end(span)  # type: ignore[arg-type]

    def shutdown(self) -> None:
        """Exports what is left, while the exporter takes it."""
        self._queue.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """See `SpanProcessor`."""
        return self._queue.force_flush(timeout_millis)


class _Counted(SpanExporter):
    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.taken = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)
        outcome = "failed"
        try:
            result = self._exporter.export(spans)
            if result is SpanExportResult.SUCCESS:
                outcome = "exported"
        finally:
            SPANS.labels(outcome).inc(len(spans))
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def _variable(name: str, default: int) -> int:
    text = os.environ.get(name, "").strip()
    return int(text) if text.isdecimal() and int(text) else default
