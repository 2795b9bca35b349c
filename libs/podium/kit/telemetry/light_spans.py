"""Spans below one that is kept, without what the SDK's are made of.

Of a rollout that is traced every turn has two or more, and a span of the SDK's costs 30 µs before
it is encoded: a sampler that is asked, locks, bounded lists of events and links that it has not,
attributes that are cleaned one by one, and a copy at its end. Whether a trace is kept was decided
at its root, which is the SDK's own. What is exported is the same, and in the same order.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from opentelemetry import trace
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode
from opentelemetry.util.types import Attributes, AttributeValue

from podium.kit.telemetry import attributes

MOST_ATTRIBUTES: Final = 128
"""Of a span, as the SDK bounds them: the oldest fall out."""
# By a name of its own: spans' methods have an argument that is called so.
_EXCEPTION_TYPE: Final = attributes.EXCEPTION_TYPE

logger = logging.getLogger(__name__)


class LightSpan(trace.Span):
    """A span that is recorded and kept; it has a parent and no links.

    A list that is given as an attribute's value is not to be changed afterwards.
    """

    __slots__ = (
        "attributes",
        "context",
        "description",
        "end_time",
        "events",
        "kind",
        "maker",
        "name",
        "parent",
        "start_time",
        "status_code",
    )

    def __init__(
        self,
        maker: LightTracer,
        name: str,
        parent: SpanContext,
        kind: SpanKind,
        given: Mapping[str, AttributeValue] | None,
    ) -> None:
        """Begins now."""
        self.maker = maker
        self.name = name
        self.parent = parent
        self.kind = kind
        self.attributes: dict[str, AttributeValue] = dict(given) if given else {}
        self.context = SpanContext(
            parent.trace_id,
            maker.ids.generate_span_id(),
            False,
            parent.trace_flags,
            parent.trace_state,
        )
        self.events: list[Event] | None = None
        self.status_code = StatusCode.UNSET
        self.description: str | None = None
        self.end_time: int | None = None
        self.start_time = time.time_ns()

    def get_span_context(self) -> SpanContext:
        """See `trace.Span`."""
        return self.context

    def is_recording(self) -> bool:
        """Until it ends."""
        return self.end_time is None

    def set_attribute(self, key: str, value: AttributeValue) -> None:
        """See `trace.Span`."""
        if self._lasts():
            self.attributes[key] = value

    def set_attributes(self, attributes: Mapping[str, AttributeValue]) -> None:
        """See `trace.Span`."""
        if self._lasts():
            self.attributes.update(attributes)

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """See `trace.Span`: what is OK stays so, and UNSET says nothing."""
        if isinstance(status, Status):
            code, description = status.status_code, status.description
        else:
            code = status
        if not self._lasts() or StatusCode.OK is self.status_code or code is StatusCode.UNSET:
            return
        self.status_code = code
        self.description = description if code is StatusCode.ERROR else None

    def update_name(self, name: str) -> None:
        """See `trace.Span`."""
        if self._lasts():
            self.name = name

    def add_event(
        self,
        name: str,
        attributes: Mapping[str, AttributeValue] | None = None,
        timestamp: int | None = None,
    ) -> None:
        """See `trace.Span`."""
        if self._lasts():
            self.events = self.events or []
            given = BoundedAttributes(MOST_ATTRIBUTES, attributes)
            self.events.append(Event(name, given, timestamp))

    def record_exception(
        self,
        exception: BaseException,
        attributes: Mapping[str, AttributeValue] | None = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """By its type alone: its message may hold what somebody said."""
        given = {_EXCEPTION_TYPE: type(exception).__qualname__, **(attributes or {})}
        self.add_event("exception", given, timestamp)

    def end(self, end_time: int | None = None) -> None:
        """Hands it to who exports."""
        if self._lasts():
            self.end_time = time.time_ns() if end_time is None else end_time
            self.maker.on_end(self)

    def readable(self) -> ReadableSpan:
        """As the SDK has it when it has ended."""
        return ReadableSpan(
            self.name,
            self.context,
            self.parent,
            self.maker.resource,
            BoundedAttributes(MOST_ATTRIBUTES, self.attributes),
            self.events or (),
            (),
            self.kind,
            status=Status(self.status_code, self.description),
            start_time=self.start_time,
            end_time=self.end_time,
            instrumentation_scope=self.maker.scope,
        )

    def _lasts(self) -> bool:
        if self.end_time is None:
            return True
        logger.warning("a span that has ended is changed no more: %s", self.name)
        return False


class LightTracer(trace.Tracer):
    """Makes light spans below what is kept here; all others are made by a tracer of the SDK."""

    def __init__(
        self,
        scope: InstrumentationScope,
        provider: TracerProvider,
        whole: trace.Tracer,
        on_end: Callable[[LightSpan], None],
    ) -> None:
        """`on_end` is told of each light span; those of `whole` go their own way."""
        self.scope = scope
        self.resource: Resource = provider.resource
        self.ids = provider.id_generator
        self.on_end = on_end
        self._whole = whole

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes = None,
        links: Sequence[trace.Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
    ) -> trace.Span:
        """See `trace.Tracer`."""
        if not links and start_time is None:
            parent = trace.get_current_span(context)
            # What another process made, or nobody keeps, is the sampler's to judge.
            if type(parent) is LightSpan:
                if parent.end_time is None:
                    return LightSpan(self, name, parent.context, kind, attributes)
            elif isinstance(parent, SdkSpan) and parent.is_recording():
                above = parent.get_span_context()
                if above.trace_flags.sampled:
                    return LightSpan(self, name, above, kind, attributes)
        rest = (record_exception, set_status_on_exception)
        return self._whole.start_span(name, context, kind, attributes, links, start_time, *rest)

    @contextmanager
    def start_as_current_span(  # type: ignore[override]
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes = None,
        links: Sequence[trace.Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
        end_on_exit: bool = True,
    ) -> Iterator[trace.Span]:
        """See `trace.Tracer`."""
        how = (record_exception, set_status_on_exception)
        span = self.start_span(name, context, kind, attributes, links, start_time, *how)
        with trace.use_span(span, end_on_exit, *how):
            yield span


class LightTracerProvider(TracerProvider):
    """The SDK's, with tracers that make light spans."""

    def __init__(
        self, sampler: Sampler | None, resource: Resource, on_end: Callable[[LightSpan], None]
    ) -> None:
        """`sampler` must keep a trace as a whole, as all that a variable names do."""
        super().__init__(sampler, resource, shutdown_on_exit=False)
        self._on_end = on_end

    def get_tracer(
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        schema_url: str | None = None,
        attributes: Attributes = None,
    ) -> trace.Tracer:
        """See `TracerProvider`."""
        given = (instrumenting_module_name, instrumenting_library_version, schema_url, attributes)
        whole = super().get_tracer(*given)
        scope = InstrumentationScope(
            instrumenting_module_name, instrumenting_library_version or "", schema_url, attributes
        )
        return LightTracer(scope, self, whole, self._on_end)


def limited() -> bool:
    """Whether a variable bounds spans, as OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT: the SDK's obey it."""
    return any(name.startswith("OTEL_") and name.endswith("_LIMIT") for name in os.environ)
