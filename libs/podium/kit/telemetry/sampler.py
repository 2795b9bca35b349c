"""Which rollouts' traces are kept when nobody says: as many as cost an episode nothing.

A traced turn takes a tenth of a core's time more than another, to make its spans and to send
them, and whoever keeps the traces of a thousand episodes at once pays too. So the first 64 that
run at the same time are traced, each as a whole; the others have a trace id for logs, and that is
all. How an episode ends is not known when it begins: those that fail are traced as others are. A
sampler that OTEL_TRACES_SAMPLER names is taken as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

from podium.kit.telemetry import attributes as names

AT_ONCE: Final = 64
ROLLOUT: Final = "invoke_agent"


class RolloutsAtOnce(Sampler, SpanProcessor):
    """A sampler for roots, which learns as a processor when a rollout is over."""

    def __init__(self, most: int = AT_ONCE) -> None:
        """`most` rollouts are traced at a time; all other traces are kept."""
        self._most = most
        self._running = 0
        self._lock = threading.Lock()

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """See `Sampler`."""
        if _is_rollout(attributes):
            with self._lock:
                if self._running >= self._most:
                    return SamplingResult(Decision.DROP)
                self._running += 1
        return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)

    def get_description(self) -> str:
        """See `Sampler`."""
        return f"RolloutsAtOnce{{{self._most}}}"

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to do."""

    def on_end(self, span: ReadableSpan) -> None:
        """Makes room when a rollout is over."""
        if span.parent is None and _is_rollout(span.attributes):
            with self._lock:
                self._running -= 1


def _is_rollout(told: Attributes) -> bool:
    return (told or {}).get(names.GEN_AI_OPERATION_NAME) == ROLLOUT
