"""What is exported is what OpenTelemetry's SDK would export, byte for byte."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, TraceFlags, TraceState
from podium.kit.telemetry.otlp_encoding import encode


class Word(StrEnum):
    SAID = "said"


def made(**limits: int) -> tuple[TracerProvider, InMemorySpanExporter]:
    """A provider, and where its spans are kept."""
    provider = TracerProvider(
        resource=Resource({"service.name": "podium-rollout", "n": 1}, "https://schema"),
        span_limits=SpanLimits(**limits),
        shutdown_on_exit=False,
    )
    kept = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    return provider, kept


def assert_same(spans: list[ReadableSpan]) -> None:
    for _ in range(2):
        # The second time everything is known.
        ours = encode(spans)
        assert ours == encode_spans(spans).SerializeToString(deterministic=True)


ATTRIBUTES: dict[str, Any] = {
    "texts": "said",
    "one": 1,
    "true": True,
    "equal to one": 1.0,
    "zero": 0.0,
    "less than zero": -0.0,
    "no number": math.inf,
    "false": False,
    "nothing": 0,
    "empty": "",
    "list": ["stop", "length"],
    "long": "é" * 5000,
    "long list": ["x"] * 300,
    "numbers": (1, 2),
    "mixed": ("a", 1),
    "truths": (True, False),
    "bytes": b"\0\xff",
    "of words": Word.SAID,
    "map": {"a": [1, {"b": "c"}]},
    "none": None,
    "too large": 2**63,
    "half a character": "\ud800",
    "of half characters": ("\ud800",),
}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_is_as_the_sdk_encodes_it(name: str) -> None:
    provider, kept = made()
    for value in (ATTRIBUTES[name], "other", ATTRIBUTES[name]):
        provider.get_tracer("t").start_span("x", attributes={name: value, "same": 1}).end()
    assert_same(list(kept.get_finished_spans()))


def test_equal_values_of_other_types_stay_apart() -> None:
    provider, kept = made()
    for value in (1, True, 1.0, 0, False, 0.0, -0.0):
        provider.get_tracer("t").start_span("x", attributes={"a": value}).end()
    assert_same(list(kept.get_finished_spans()))


@pytest.mark.parametrize("kind", SpanKind)
def test_spans_of_every_shape(kind: SpanKind) -> None:
    provider, kept = made(max_span_attributes=2, max_events=1)
    first, second = provider.get_tracer("a", "1", "https://a"), provider.get_tracer("b")
    state = TraceState([("vendor", "x")])
    for remote, told in ((True, None), (False, None), (True, state)):
        flags = TraceFlags(TraceFlags.SAMPLED)
        above = SpanContext(0xABC, 0xDEF, remote, flags, told)
        context = trace.set_span_in_context(trace.NonRecordingSpan(above))
        for tracer in (first, second, first):
            span = tracer.start_span("below", context, kind, {"a": 1, "b": 2, "c": 3})
            span.set_status(StatusCode.ERROR, "failed" if remote else None)
            span.end()
            linked = tracer.start_span("root", kind=kind, links=[trace.Link(above, {"why": "x"})])
            for _ in range(2):
                linked.add_event("happened", {"n": 1})
            linked.set_status(StatusCode.OK)
            linked.end()
    other, elsewhere = made()
    other.get_tracer("a").start_span("of another resource").end()
    spans = list(kept.get_finished_spans())
    assert_same(spans)
    assert_same([])
    both = ExportTraceServiceRequest.FromString(encode([*spans, *elsewhere.get_finished_spans()]))
    assert [len(each.scope_spans) for each in both.resource_spans] == [2, 1]
