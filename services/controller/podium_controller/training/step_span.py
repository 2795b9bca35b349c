"""The root of a step's trace: small, whatever the step trains on, for each rollout has its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, zip_longest

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from podium.kit.telemetry import attributes, failed, span_of, tracer
from podium.types.v1 import trajectory_pb2

MAX_LINKS = 100
"""To rollouts; OpenTelemetry keeps 128 links of a span, and the first is the job's."""

_tracer = tracer(__name__)


def begin(job_id: str, trace_parent: str, step: int) -> trace.Span:
    """The root span of a step, linked to the call that made the job."""
    carrier = {"traceparent": trace_parent}
    made = trace.get_current_span(
        TraceContextTextMapPropagator().extract(carrier, context=Context())
    ).get_span_context()
    return _tracer.start_span(
        "train_step",
        context=Context(),
        links=[trace.Link(made)] if made.is_valid else [],
        attributes={attributes.JOB_ID: job_id, attributes.STEP: step},
    )


def link(span: trace.Span, groups: Sequence[trajectory_pb2.Group]) -> None:
    """Links a step to the rollouts that it trains on: every group's first, then their second…

    Each rollout is linked to the step in any case, however many they are.
    """
    if not span.is_recording():
        return
    span.set_attribute(attributes.TRAJECTORIES, sum(len(group.trajectories) for group in groups))
    for trajectory, context in islice(_contexts(groups), MAX_LINKS):
        span.add_link(context, {attributes.TRAJECTORY_ID: trajectory.id})


@contextmanager
def current(span: trace.Span) -> Iterator[None]:
    """What runs inside is the step's; its failure is told by its type, and does not end it."""
    with trace.use_span(span, False, record_exception=False, set_status_on_exception=False):
        try:
            yield
        except Exception as error:
            failed(span, error)
            raise


def trace_id(span: trace.Span) -> str:
    """Its W3C trace id, 32 hex digits; empty without one."""
    context = span.get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else ""


def _contexts(
    groups: Sequence[trajectory_pb2.Group],
) -> Iterator[tuple[trajectory_pb2.Trajectory, trace.SpanContext]]:
    seen = set()
    for row in zip_longest(*(group.trajectories for group in groups)):
        for trajectory in filter(None, row):
            context = span_of(trajectory.trace_id, trajectory.root_span_id)
            # An episode that was played from two sides has two trajectories.
            if context is not None and context.span_id not in seen:
                seen.add(context.span_id)
                yield trajectory, context
