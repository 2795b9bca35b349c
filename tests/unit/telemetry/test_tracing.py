"""Spans: what they tell of a failure, where they are queued, and what is lost is counted."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, SamplingResult
from podium.core.errors import InvalidArgumentError
from podium.kit.rpc.client_interceptors import UnaryInterceptor
from podium.kit.telemetry import (
    current_span_id,
    current_trace_id,
    exemplar,
    span_of,
    traced,
    tracer,
)
from podium.kit.telemetry.exporter import check_sampler
from podium.kit.telemetry.span_metrics import SPANS
from podium.kit.telemetry.span_queue import SpanQueue


def test_what_a_block_raises_is_told_by_its_type_alone(spans) -> None:
    with pytest.raises(ValueError, match="the prompt"), traced(tracer("t"), "work"):
        raise ValueError("the prompt was: hello")
    (span,) = spans.get_finished_spans()
    assert span.attributes["error.type"] == span.status.description == "ValueError"
    assert "the prompt" not in span.to_json()


def test_a_root_is_linked_to_what_is_outside(spans) -> None:
    with traced(tracer("t"), "outside") as outside, traced(tracer("t"), "inside", root=True):
        assert current_trace_id() != f"{outside.get_span_context().trace_id:032x}"
    inside = next(s for s in spans.get_finished_spans() if s.name == "inside")
    assert inside.parent is None
    assert [link.context for link in inside.links] == [outside.get_span_context()]


def test_a_span_that_nobody_keeps_has_a_trace_id_and_no_more() -> None:
    unkept = TracerProvider(sampler=ALWAYS_OFF).get_tracer("t")
    with unkept.start_as_current_span("x") as span:
        assert current_trace_id() == f"{span.get_span_context().trace_id:032x}"
        assert current_span_id() == ""
        assert exemplar() is None
        assert not span.is_recording()


def test_of_a_trace_that_nobody_keeps_nothing_is_made_but_its_root() -> None:
    made: list[str] = []

    class Noted(ParentBased):
        def should_sample(self, *arguments: Any, **named: Any) -> SamplingResult:
            made.append(arguments[2])
            return super().should_sample(*arguments, **named)

    own = TracerProvider(sampler=Noted(ALWAYS_OFF)).get_tracer("t")
    calls = UnaryInterceptor("a:1", None, "")
    with traced(own, "root", root=True) as root:
        with traced(own, "child") as child:
            assert child is root
        assert calls._span("a/b") == (root, False)
        # The root of another trace is asked about by itself.
        with traced(own, "another", root=True) as another:
            assert another is not root
        # It has not ended with what is below it.
        assert trace.get_current_span() is root
    assert made == ["root", "another"]


@pytest.mark.parametrize(
    ("trace_id", "span_id"),
    [("", ""), ("0" * 32, "1" * 16), ("1" * 32, "0" * 16), ("g" * 32, "1" * 16), ("1" * 32, "A1")],
)
def test_ids_that_are_none_are_no_link(trace_id: str, span_id: str) -> None:
    assert span_of(trace_id, span_id) is None


@pytest.mark.parametrize(
    ("variables", "wrong"),
    [
        ({}, ""),
        ({"OTEL_TRACES_SAMPLER": "parentbased_traceidratio"}, ""),
        ({"OTEL_TRACES_SAMPLER": "always_on", "OTEL_TRACES_SAMPLER_ARG": "x"}, ""),
        ({"OTEL_TRACES_SAMPLER": "sometimes"}, "OTEL_TRACES_SAMPLER"),
        (
            {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "10%"},
            "OTEL_TRACES_SAMPLER_ARG",
        ),
        (
            {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "nan"},
            "OTEL_TRACES_SAMPLER_ARG",
        ),
    ],
)
def test_a_wrong_sampler_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], wrong: str
) -> None:
    for name in ("OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if not wrong:
        return check_sampler()
    with pytest.raises(InvalidArgumentError) as refused:
        check_sampler()
    assert [each.field for each in refused.value.violations] == [wrong]
    return None


class Collector(SpanExporter):
    """Takes nothing until it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.asked = threading.Event()
        self.took = 0
        self.answer = SpanExportResult.SUCCESS

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.set()
        assert self.may.wait(60)
        self.took += len(spans)
        return self.answer


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    for name, value in {"MAX_QUEUE_SIZE": "20", "MAX_EXPORT_BATCH_SIZE": "10"}.items():
        monkeypatch.setenv(f"OTEL_BSP_{name}", value)
    made = Collector()
    yield made
    made.may.set()


def counted() -> dict[str, float]:
    return {each: SPANS.labels(each)._value.get() for each in ("exported", "failed", "dropped")}


def since(before: dict[str, float]) -> dict[str, float]:
    return {name: value - before[name] for name, value in counted().items()}


def test_a_collector_that_hangs_holds_nobody_up_and_what_falls_out_is_counted(collector) -> None:
    before = counted()
    provider = TracerProvider()
    provider.add_span_processor(SpanQueue(collector))
    made = provider.get_tracer("t")
    for _ in range(10):
        made.start_span("first").end()
    assert collector.asked.wait(60)
    for _ in range(100):
        made.start_span("more").end()
    assert since(before) == {"exported": 0, "failed": 0, "dropped": 80}
    collector.may.set()
    provider.shutdown()
    assert collector.took == 30
    assert since(before) == {"exported": 30, "failed": 0, "dropped": 80}


def test_what_a_collector_refuses_is_counted(collector) -> None:
    before = counted()
    collector.answer = SpanExportResult.FAILURE
    collector.may.set()
    provider = TracerProvider()
    provider.add_span_processor(SpanQueue(collector))
    for _ in range(5):
        provider.get_tracer("t").start_span("x").end()
    provider.shutdown()
    assert since(before) == {"exported": 0, "failed": 5, "dropped": 0}


def test_what_is_not_sampled_is_not_queued(collector) -> None:
    before = counted()
    collector.may.set()
    provider = TracerProvider(sampler=ALWAYS_OFF)
    provider.add_span_processor(SpanQueue(collector))
    provider.get_tracer("t").start_span("x").end()
    provider.shutdown()
    assert collector.took == 0
    assert set(since(before).values()) == {0}


def test_stored_ids_are_a_span_of_elsewhere() -> None:
    assert span_of("1" * 32, "1" * 16) == trace.SpanContext(
        int("1" * 32, 16), int("1" * 16, 16), True, trace.TraceFlags(1)
    )
