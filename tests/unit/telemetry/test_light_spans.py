"""Spans below one that is kept are light, and what is exported of them is as the SDK's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState
from podium.kit.telemetry import tracing
from podium.kit.telemetry.light_spans import LightSpan, LightTracerProvider
from podium.kit.telemetry.otlp_encoding import Kept, encode

RESOURCE = Resource({"service.name": "podium-rollout"})


class Counting(IdGenerator):
    """Ids that are the same in every run."""

    def __init__(self) -> None:
        self._next = itertools.count(1)

    def generate_span_id(self) -> int:
        return next(self._next)

    def generate_trace_id(self) -> int:
        return next(self._next)


class Keeping(SpanProcessor):
    def __init__(self, kept: list[Kept]) -> None:
        self._kept = kept

    def on_end(self, span: ReadableSpan) -> None:
        if span.context.trace_flags.sampled:
            self._kept.append(span)


def light(sampler: Sampler = ALWAYS_ON) -> tuple[trace.Tracer, list[Kept]]:
    kept: list[Kept] = []
    return _tracer(LightTracerProvider(ParentBased(sampler), RESOURCE, kept.append), kept), kept


def whole() -> tuple[trace.Tracer, list[Kept]]:
    kept: list[Kept] = []
    return _tracer(TracerProvider(ParentBased(ALWAYS_ON), RESOURCE), kept), kept


def _tracer(provider: TracerProvider, kept: list[Kept]) -> trace.Tracer:
    provider.id_generator = Counting()
    provider.add_span_processor(Keeping(kept))
    return provider.get_tracer("t", "1", "https://schema")


def exported(made: bytes) -> ExportTraceServiceRequest:
    """What arrives, without the times; attributes have no order."""
    request = ExportTraceServiceRequest.FromString(made)
    for scope in request.resource_spans[0].scope_spans:
        for span in scope.spans:
            assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
            span.start_time_unix_nano = span.end_time_unix_nano = 0
            told = sorted(span.attributes, key=lambda each: each.key)
            del span.attributes[:]
            span.attributes.extend(told)
            for event in span.events:
                event.time_unix_nano = 0
    return request


def ordinary(span: trace.Span) -> None:
    span.set_attributes({"podium.turn": 3, "seed": 2**40, "share": 0.5, "last": True})
    span.set_attribute("reasons", ("stop",))


def replaced(span: trace.Span) -> None:
    span.set_attribute("b", 1)
    span.set_attribute("a", "another")
    span.update_name("renamed")


def failed(span: trace.Span) -> None:
    span.set_status(StatusCode.ERROR, "ValueError")


def told_by_status(span: trace.Span) -> None:
    span.set_status(Status(StatusCode.ERROR, "TypeError"))
    span.set_status(StatusCode.UNSET)


def well_for_good(span: trace.Span) -> None:
    span.set_status(StatusCode.OK, "is not told")
    span.set_status(StatusCode.ERROR, "too late")


def changed_after_its_end(span: trace.Span) -> None:
    span.set_attribute("before", 1)
    span.end()
    ordinary(span)
    failed(span)
    span.update_name("late")
    span.add_event("late")
    span.end()


def with_events(span: trace.Span) -> None:
    span.add_event("first", {"n": 1})
    span.add_event("second")


def too_many(span: trace.Span) -> None:
    for number in range(130):
        span.set_attribute(f"a{number}", number)


def odd(span: trace.Span) -> None:
    span.set_attributes(
        {"list": ["a", "b"], "none": None, "bytes": b"\0", "map": {"a": [1]}, "empty": ""}  # type: ignore[dict-item]
    )
    span.set_attributes({"": "no name", "large": 2**64, "half": "\ud800", "mixed": ("a", 1)})  # type: ignore[dict-item]
    span.set_attributes({"numbers": (1, 2), "texts": ("a", "b"), "long": "é" * 300})
    span.set_attribute("negative", -1)


@pytest.mark.parametrize(
    "tells",
    [
        lambda span: None,
        *(ordinary, replaced, failed, told_by_status, well_for_good, changed_after_its_end),
        *(with_events, too_many, odd),
    ],
)
@pytest.mark.parametrize("kind", [SpanKind.CLIENT, SpanKind.INTERNAL])
def test_what_arrives_is_what_the_sdk_would_have_sent(
    tells: Callable[[trace.Span], None], kind: SpanKind
) -> None:
    arrived = []
    for made in (light, whole):
        tracer, kept = made()
        root = tracer.start_span("root", Context(), links=[trace.Link(SpanContext(7, 7, True))])
        below = trace.set_span_in_context(root)
        span = tracer.start_span("below", below, kind, {"a": "told at once"})
        inner = tracer.start_span("inner", trace.set_span_in_context(span))
        tells(span)
        for each in (inner, span, root):
            if each.is_recording():
                each.end()
        assert [type(each) is LightSpan for each in kept].count(True) == (2 if made is light else 0)
        arrived.append(exported(encode(kept)))
        # Who exports by HTTP has the SDK encode them.
        readable = [each.readable() if isinstance(each, LightSpan) else each for each in kept]
        assert exported(encode_spans(readable).SerializeToString()) == arrived[0]
    assert arrived[0] == arrived[1]


def test_what_another_process_began_is_the_samplers_to_judge() -> None:
    tracer, kept = light()
    for flags, state in ((1, TraceState([("vendor", "x")])), (0, None)):
        far = SpanContext(9, 9, True, TraceFlags(flags), state)
        above = trace.set_span_in_context(trace.NonRecordingSpan(far))
        first = tracer.start_span("first", above)
        second = tracer.start_span("second", trace.set_span_in_context(first))
        assert first.is_recording() == second.is_recording() == bool(flags)
        second.end()
        first.end()
    assert [type(each) is LightSpan for each in kept] == [True, False]
    # The vendor's words go on to whoever is called below.
    assert kept[0].get_span_context().trace_state == TraceState([("vendor", "x")])


def test_below_what_nobody_keeps_there_is_nothing() -> None:
    tracer, kept = light(ALWAYS_OFF)
    with tracer.start_as_current_span("root") as root:
        assert root.get_span_context().is_valid
        with tracer.start_as_current_span("below") as below:
            assert not below.is_recording()
    assert kept == []


def test_a_span_that_is_linked_or_follows_one_that_has_ended_is_the_sdks() -> None:
    tracer, kept = light()
    with tracer.start_as_current_span("root") as root:
        links = [trace.Link(SpanContext(7, 7, True))]
        tracer.start_span("linked", links=links).end()
        tracer.start_span("dated", start_time=1).end()
    tracer.start_span("late", trace.set_span_in_context(root)).end()
    assert not [each for each in kept if isinstance(each, LightSpan)]
    assert {each.get_span_context().trace_id for each in kept} == {root.get_span_context().trace_id}


def test_an_exception_is_told_by_its_type_alone() -> None:
    tracer, kept = light()
    root = tracer.start_span("root")
    span = tracer.start_span("below", trace.set_span_in_context(root))
    span.record_exception(ValueError("the prompt was: hello"))
    span.end()
    made = encode(kept)
    assert b"ValueError" in made
    assert b"hello" not in made


class Sent(SpanExporter):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        self.spans: list[Any] = []

    def export(self, spans: Any) -> SpanExportResult:
        self.spans += spans
        return SpanExportResult.SUCCESS


@pytest.mark.parametrize(("limit", "light"), [("", 1), ("2", 0)])
def test_spans_that_a_variable_bounds_are_the_sdks(
    monkeypatch: pytest.MonkeyPatch, limit: str, light: int
) -> None:
    if limit:
        monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", limit)
    sent = Sent()
    provider = tracing._exporting("judge", sent)
    tracer = provider.get_tracer("t")
    with tracer.start_as_current_span("root"), tracer.start_as_current_span("below") as span:
        span.set_attributes({"a": 1, "b": 2, "c": 3})
    provider.shutdown()
    assert [type(each) is LightSpan for each in sent.spans].count(True) == light
    (below,) = [each for each in sent.spans if each.name == "below"]
    assert len(below.attributes) == (2 if limit else 3)
