"""OTLP over HTTP, which hosted collectors take; imported where spans are exported alone."""

from __future__ import annotations

import io
from collections.abc import Sequence

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExportResult

from podium.kit.telemetry.light_spans import LightSpan
from podium.kit.telemetry.otlp_encoding import Kept

_ANSWER_BYTES = 64 * 1024


class HttpSpanExporter(OTLPSpanExporter):
    """The SDK's, which takes light spans too."""

    def __init__(self) -> None:
        """OTEL_EXPORTER_OTLP_… say where to."""
        super().__init__(session=_session())

    def export(self, spans: Sequence[Kept]) -> SpanExportResult:
        """See `SpanExporter`."""
        whole = [span.readable() if isinstance(span, LightSpan) else span for span in spans]
        return super().export(whole)


def _session() -> requests.Session:
    """Reads no answer of unknown or great length: a collector's words are of no use here."""

    def bounded(response: requests.Response, **_: object) -> None:
        length = response.headers.get("Content-Length", "")
        if not (length.isdecimal() and int(length) <= _ANSWER_BYTES):
            response.raw.close()
            response.raw = io.BytesIO()

    session = requests.Session()
    session.hooks["response"].append(bounded)
    return session
