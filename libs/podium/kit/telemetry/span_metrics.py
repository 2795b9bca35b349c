"""What every service shows to Prometheus of the spans that it exports."""

from __future__ import annotations

from prometheus_client import Counter

SPANS = Counter(
    "podium_tracing_spans_total",
    "Spans that were to be exported: `exported`, `failed` (the collector did not take them), or"
    " `dropped` (the queue was full).",
    ("outcome",),
)
for _outcome in ("exported", "failed", "dropped"):
    SPANS.labels(_outcome)
