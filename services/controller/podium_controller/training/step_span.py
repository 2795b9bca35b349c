"""The root of a step's trace: small, whatever the step trains on, for each rollout has its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue
from podium.kit.telemetry import attributes, failed, span_of, tracer
from podium.types.v1 import trajectory_pb2

MAX_LINKS = 100
"""To rollouts, of one span; OpenTelemetry keeps 128, and the root's first is the job's."""

_Rollout = tuple[trajectory_pb2.Trajectory, trace.SpanContext]

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
    """Links a step to the rollouts that it trains on, to every one that is traced.

    The root leads to every group's first, then their second… Where it cannot lead to all, each
    group has a span below it that leads to the group's.
    """
    if not span.is_recording():
        return
    span.set_attribute(attributes.TRAJECTORIES, sum(len(group.trajectories) for group in groups))
    traced = _traced(groups)
    found = [each for row in zip_longest(*traced) for each in row if each is not None]
    for trajectory, context in found[:MAX_LINKS]:
        span.add_link(context, {attributes.TRAJECTORY_ID: trajectory.id})
    if len(found) <= MAX_LINKS:
        return
    below = trace.set_span_in_context(span)
    for group, rollouts in zip(groups, traced, strict=True):
        told: dict[str, AttributeValue] = {
            attributes.GROUP_ID: group.id,
            attributes.TRAJECTORIES: len(group.trajectories),
        }
        for start in range(0, len(rollouts), MAX_LINKS):
            links = [
                trace.Link(context, {attributes.TRAJECTORY_ID: trajectory.id})
                for trajectory, context in rollouts[start : start + MAX_LINKS]
            ]
            _tracer.start_span("train_group", below, attributes=told, links=links).end()


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


def _traced(groups: Sequence[trajectory_pb2.Group]) -> list[list[_Rollout]]:
    """Those of each group whose traces are kept, once each."""
    found: list[list[_Rollout]] = []
    for group in groups:
        rollouts: dict[int, _Rollout] = {}
        for trajectory in group.trajectories:
            context = span_of(trajectory.trace_id, trajectory.root_span_id)
            # An episode that was played from two sides has two trajectories.
            if context is not None:
                rollouts.setdefault(context.span_id, (trajectory, context))
        found.append(list(rollouts.values()))
    return found
