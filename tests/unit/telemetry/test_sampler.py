"""Which rollouts are traced when nobody says: as many as a budget of spans a second holds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased
from podium.kit.telemetry import attributes, tracing
from podium.kit.telemetry.sampler import ALWAYS, SPANS_A_SECOND, SpanBudget

ROLLOUT = {attributes.GEN_AI_OPERATION_NAME: "invoke_agent"}


class World:
    """A process with a clock of its own, whose traced rollouts end spans as they are told to."""

    def __init__(self, most: float = SPANS_A_SECOND) -> None:
        self.now = 0.0
        self.ended = 0
        self.budget = SpanBudget(lambda: self.ended, most, lambda: self.now)
        self.provider = TracerProvider(sampler=ParentBased(self.budget), shutdown_on_exit=False)
        self.provider.add_span_processor(self.budget)
        self.tracer = self.provider.get_tracer("t")

    def rollout(self) -> trace.Span:
        return self.tracer.start_span("invoke_agent x", Context(), attributes=ROLLOUT)

    def round(self, rollouts: int, turns: int, turn_seconds: float) -> int:
        """Of so many rollouts, all at once, each turn of which ends two spans: those traced."""
        running = [self.rollout() for _ in range(rollouts)]
        traced = sum(span.is_recording() for span in running)
        for _ in range(turns):
            self.now += turn_seconds
            self.ended += 2 * traced
        for span in running:
            span.end()
        return traced


def test_a_rollout_is_traced_as_a_whole_and_makes_room_when_it_is_over() -> None:
    world = World(most=ALWAYS + 2)
    running = [world.rollout() for _ in range(ALWAYS + 4)]
    kept = [span.is_recording() for span in running]
    assert kept == [True] * (ALWAYS + 2) + [False] * 2
    # What is below, here or elsewhere, goes the way of its root, and makes no room by ending.
    for span in running:
        child = world.tracer.start_span("chat", trace.set_span_in_context(span))
        assert child.is_recording() == span.is_recording()
        child.end()
    # Steps and calls are no rollouts, and one that was not traced makes no room.
    assert world.tracer.start_span("train_step", Context()).is_recording()
    running[-1].end()
    assert not world.rollout().is_recording()
    running[0].end()
    assert [world.rollout().is_recording() for _ in range(2)] == [True, False]


def test_a_default_job_is_traced_wholly_from_its_first_step_on() -> None:
    world = World()
    # Eight groups of eight, turns of three seconds, and as long for the training between.
    for _ in range(20):
        assert world.round(64, 10, 3.0) == 64
        world.now += 30


@pytest.mark.parametrize(
    ("turn_seconds", "traced"),
    [(1.0, 32), (2.0, 64), (10.0, 320), (0.2, ALWAYS), (0.001, ALWAYS)],
)
def test_the_slower_the_turns_the_more_rollouts_are_traced(
    turn_seconds: float, traced: int
) -> None:
    world = World()
    found = [world.round(400, 10, turn_seconds) for _ in range(12)]
    # Before anything is known a span a second is supposed.
    assert found[0] == SPANS_A_SECOND
    assert found[6:] == pytest.approx([traced] * 6, rel=0.05)


def test_rollouts_of_another_pace_are_learned_while_they_run() -> None:
    world = World()
    for _ in range(8):
        world.round(400, 10, 10.0)
    # One that never ends is no obstacle: its spans count as they come.
    slow = [world.rollout() for _ in range(10)]
    for _ in range(100):
        world.now += 1
        world.ended += 2 * len(slow)
    assert world.round(1000, 10, 1.0) < 64
    assert all(span.is_recording() for span in slow)


def test_while_no_rollout_runs_nothing_is_learned() -> None:
    world = World()
    # A service's other spans, such as those of its calls.
    world.now, world.ended = 1.0, 1_000_000
    assert world.round(1000, 10, 1.0) == SPANS_A_SECOND


class Taking(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


@pytest.mark.parametrize(
    ("sampler", "limit", "traced"),
    [("", "", ALWAYS - 1), ("", "100", ALWAYS - 1), ("parentbased_always_on", "", 100)],
)
def test_a_process_counts_the_spans_that_it_exports_unless_a_variable_names_its_sampler(
    monkeypatch: pytest.MonkeyPatch, sampler: str, limit: str, traced: int
) -> None:
    # Empty is as not set; with a limit the spans are the SDK's.
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    if limit:
        monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", limit)
    provider = tracing._exporting("t", Taking())
    try:
        made = provider.get_tracer("t")
        first = made.start_span("invoke_agent x", Context(), attributes=ROLLOUT)
        for _ in range(5000):
            made.start_span("chat", trace.set_span_in_context(first)).end()
        more = [made.start_span("x", Context(), attributes=ROLLOUT) for _ in range(100)]
        assert sum(span.is_recording() for span in more) == traced
    finally:
        provider.shutdown()
