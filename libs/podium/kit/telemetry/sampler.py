"""Which rollouts' traces are kept when nobody says: as many as end so many spans a second.

What a trace costs is its spans: those of a turn take a tenth of the time that a turn without them
takes, or more. So a process has a budget of spans, and begins to trace a rollout while those that
it traces already, at the pace of the last ones, leave room for one more. A turn that waits ten
seconds for a model leaves room for ten times the rollouts of one that waits one, so that all are
traced where there are few, or slow ones, and of a thousand fast ones a part. Each is traced as a
whole or not at all; the others have a trace id for logs, and that is all. How an episode ends is
not known when it begins: those that fail are traced as others are. A sampler that
OTEL_TRACES_SAMPLER names is taken as it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

from podium.kit.telemetry import attributes as names

SPANS_A_SECOND: Final = 64
"""Of all rollouts that a process traces. A turn without tools ends two."""
ALWAYS: Final = 8
"""Rollouts at once that are traced at any pace."""
ROLLOUT: Final = "invoke_agent"

_SUPPOSED: Final = 64.0
"""Seconds of rollouts with a span each: what the pace is taken for until it is known."""
_REMEMBERED: Final = 512.0
"""Seconds of rollouts after which what was before counts half."""


class SpanBudget(Sampler, SpanProcessor):
    """A sampler for roots, which learns as a processor when a rollout is over."""

    def __init__(
        self,
        ended: Callable[[], int],
        most: float = SPANS_A_SECOND,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Bounds rollouts alone; all other traces are kept.

        Args:
            ended: how many spans of this process were to be exported until now.
            most: that rollouts are to end in a second.
        """
        self._ended = ended
        self._most = most
        self._clock = clock
        self._running = 0
        # Of the rollouts that are traced: spans that they ended, in so many seconds of theirs.
        self._spans = self._seconds = _SUPPOSED
        self._seen, self._looked = ended(), clock()
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
                self._look()
                after = self._running + 1
                if after > ALWAYS and after * self._spans > self._most * self._seconds:
                    return SamplingResult(Decision.DROP)
                self._running = after
        return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)

    def get_description(self) -> str:
        """See `Sampler`."""
        return f"SpanBudget{{{self._most:g}}}"

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to do."""

    def on_end(self, span: ReadableSpan) -> None:
        """Makes room when a rollout is over."""
        if span.parent is None and _is_rollout(span.attributes):
            with self._lock:
                self._look()
                self._running -= 1

    def _look(self) -> None:
        """Counts what those that run have done since the last look."""
        ended, now = self._ended(), self._clock()
        if self._running:
            self._spans += ended - self._seen
            self._seconds += self._running * (now - self._looked)
        self._seen, self._looked = ended, now
        if self._seconds > _REMEMBERED:
            self._spans, self._seconds = self._spans / 2, self._seconds / 2


def _is_rollout(attributes: Attributes) -> bool:
    return (attributes or {}).get(names.GEN_AI_OPERATION_NAME) == ROLLOUT
