"""Langfuse, by its own client: a trace for each episode, in a session of the job's id.

Ids of traces and observations are made of the episode's id and a place in it, so that what is
sent again is what is there already.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from google.protobuf.timestamp_pb2 import Timestamp
from langfuse import (
    Langfuse,
    LangfuseAgent,
    LangfuseGeneration,
    LangfuseOtelSpanAttributes,
    LangfuseSpan,
)
from opentelemetry import trace as otel
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from podium.core.actions import Action, actions_of, has_succeeded, total_reward
from podium.core.contract import to_plain
from podium.core.job_environments import title_of
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import trajectory_pb2

from podium_tracking.domain.scalars import finite
from podium_tracking.domain.trackers import Delivered, TrackerError

_TIMEOUT_SECONDS = 20
_FLUSH_AT = 512
"""Observations that may wait: the client's queue drops what is beyond 2048."""
_TEXT = 65536
"""Characters of a conversation that go with a generation, the newest ones."""
_DEFAULT_URL = "https://cloud.langfuse.com"


class _Ids(IdGenerator):
    """Hands out the ids that are set."""

    trace = 0
    span = 0

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span


class _Checked(SpanExporter):
    """Remembers a failure: the client's queue drops what could not be sent, and says nothing."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self.failed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._inner.export(spans)
        self.failed = self.failed or result is not SpanExportResult.SUCCESS
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._inner.force_flush(timeout_millis)


class LangfuseTracker:
    """Implements `Tracker`."""

    episodes_at: Literal["step", "end", "never"] = "step"

    def __init__(self, public_key: str, secret_key: str, base_url: str) -> None:
        self._keys = public_key, secret_key
        self._url = (base_url or _DEFAULT_URL).rstrip("/")
        self._ids = _Ids()
        self._client: Any = None
        self._exporter: _Checked | None = None
        self._tracer: otel.Tracer | None = None
        self._job = pb.Job()
        self._waiting = 0

    def open(self, job: pb.Job) -> Delivered:
        """See `Tracker`."""
        self._job = job
        if self._client is None:
            self._connect(job.spec.tracking.langfuse.environment)
        return Delivered(finished=self.has(_session_trace(job.id)))

    def has(self, trajectory_id: str) -> bool:
        """Asks Langfuse."""
        trace = Langfuse.create_trace_id(seed=trajectory_id)
        found = self._client.api.observations.get_many(trace_id=trace, limit=1)
        return bool(found.data)

    def episodes(self, step: int, chunk: Sequence[trajectory_pb2.Trajectory]) -> None:
        """A trace each."""
        for each in chunk:
            self._episode(step, each)
        self._flush()

    def step(self, sequence: int, step: pb.Step) -> None:
        """Its episodes say everything."""

    def evaluation(self, sequence: int, evaluation: pb.Evaluation) -> None:
        """No episode of training."""

    def finish(self, job: pb.Job) -> None:
        """The training session's own trace, by which its end is known."""
        name = _session_trace(job.id)
        steps = job.completed_steps
        self._observe(
            LangfuseSpan,
            name,
            "",
            name,
            None,
            (job.start_time, job.end_time),
            input={
                "config": to_plain(job.spec),
                "start_time": job.start_time.ToJsonString(),
            },
            output={
                "final_metrics": finite(job.latest_metrics),
                "total_episodes": (
                    steps * job.spec.rollout.groups_per_step * job.spec.rollout.group_size
                ),
                "training_time": _seconds(job.start_time, job.end_time),
            },
            metadata={
                "experiment_name": job.id,
                "model_checkpoints": f"{job.id}@{steps}",
                "hardware_info": job.pool,
                "state": pb.JobState.Name(job.state),
            },
        )
        self._flush()

    def close(self) -> None:
        """Sends what is left."""
        if self._client is not None:
            self._flush()

    def _connect(self, environment: str) -> None:
        public, secret = self._keys
        basic = base64.b64encode(f"{public}:{secret}".encode()).decode()
        self._exporter = _Checked(
            OTLPSpanExporter(
                endpoint=f"{self._url}/api/public/otel/v1/traces",
                headers={
                    "Authorization": f"Basic {basic}",
                    "x-langfuse-sdk-name": "python",
                    "x-langfuse-public-key": public,
                    "x-langfuse-ingestion-version": "4",
                },
                timeout=_TIMEOUT_SECONDS,
            )
        )
        provider = TracerProvider(id_generator=self._ids)
        self._client = Langfuse(
            public_key=public,
            secret_key=secret,
            base_url=self._url,
            timeout=_TIMEOUT_SECONDS,
            environment=environment,
            tracer_provider=provider,
            span_exporter=self._exporter,
            should_export_span=lambda span: True,
        )
        self._tracer = provider.get_tracer("podium.tracking")

    def _episode(self, step: int, trajectory: trajectory_pb2.Trajectory) -> None:
        spec, seed = self._job.spec, trajectory.id
        name = f"episode_{seed}"
        actions = actions_of(trajectory)
        times = trajectory.start_time, trajectory.end_time
        failed = trajectory.stop_reason == trajectory_pb2.STOP_REASON_FAILED
        root = self._observe(
            LangfuseAgent,
            seed,
            "",
            name,
            None,
            times,
            input={
                "initial_state": actions[0].prompt if actions else None,
                "task_description": trajectory.scenario_id,
            },
            output={
                "final_result": actions[-1].next_state or actions[-1].said if actions else None,
                "total_reward": total_reward(trajectory),
                "success": has_succeeded(trajectory),
            },
            metadata={
                "agent_type": trajectory.environment or title_of(spec) or "client",
                "model_name": spec.base_model,
                "environment": trajectory.environment or title_of(spec),
                "step": step,
                "group": trajectory.group_id,
                "stop_reason": trajectory_pb2.StopReason.Name(trajectory.stop_reason),
                "reward_parts": dict(trajectory.reward_parts),
                "explanation": trajectory.explanation,
                "trace_id": trajectory.trace_id,
            },
            level="ERROR" if failed else "DEFAULT",
            status_message=(
                f"{trajectory.failure.type}: {trajectory.failure.message}" if failed else None
            ),
        )
        # When each turn was is not kept: the episode's time, in equal parts.
        parts = _parts(*times, len(actions))
        for at, (action, part) in enumerate(zip(actions, parts, strict=True)):
            self._action(name, seed, root, at, action, part)

    def _action(
        self,
        trace: str,
        seed: str,
        root: otel.Span,
        at: int,
        action: Action,
        times: tuple[Timestamp, Timestamp],
    ) -> None:
        seconds = _seconds(*times)
        span = self._observe(
            LangfuseSpan,
            seed,
            f"action-{at}",
            trace,
            root,
            times,
            name=f"action_{at}_{action.type}",
            input={
                "state": action.state,
                "action_type": action.type,
                "parameters": action.parameters,
            },
            output={
                "result": action.result,
                "reward": action.reward,
                "next_state": action.next_state,
            },
            metadata={
                "step_number": at,
                "reasoning": action.thoughts or action.said,
                "execution_time": seconds,
            },
        )
        sampling = self._job.spec.rollout.sampling
        self._observe(
            LangfuseGeneration,
            seed,
            f"generation-{at}",
            trace,
            span,
            times,
            name="agent_action_generation",
            model=self._job.spec.base_model,
            model_parameters={
                "temperature": sampling.temperature,
                "max_tokens": sampling.max_tokens,
            },
            usage_details={"output": action.tokens},
            input=_newest(action.prompt),
            output=action.said,
            metadata={
                "temperature": sampling.temperature,
                "max_tokens": sampling.max_tokens,
                "token_count": action.tokens,
                "latency_ms": seconds * 1000,
            },
        )

    def _observe(
        self,
        kind: Callable[..., Any],
        seed: str,
        place: str,
        trace: str,
        parent: otel.Span | None,
        times: tuple[Timestamp, Timestamp],
        *,
        name: str = "",
        **fields: Any,
    ) -> otel.Span:
        """One observation, begun and ended; its ids follow from `seed` and `place`."""
        assert self._tracer is not None
        self._ids.trace = int(Langfuse.create_trace_id(seed=seed), 16)
        digest = hashlib.sha256(f"{seed}\0{place}".encode()).digest()
        self._ids.span = int.from_bytes(digest[:8], "big") or 1
        context = otel.set_span_in_context(parent or otel.INVALID_SPAN)
        start, end = times
        span = self._tracer.start_span(
            name or trace, context=context, start_time=start.ToNanoseconds() or None
        )
        names = LangfuseOtelSpanAttributes
        span.set_attributes({names.TRACE_NAME: trace, names.TRACE_SESSION_ID: self._job.id})
        kind(otel_span=span, langfuse_client=self._client, **fields)
        span.end(end_time=end.ToNanoseconds() or None)
        self._waiting += 1
        if self._waiting >= _FLUSH_AT:
            self._flush()
        return span

    def _flush(self) -> None:
        """Waits until Langfuse has taken it.

        Raises:
            TrackerError: it has not.
        """
        if self._waiting:
            self._client.flush()
            self._waiting = 0
        if self._exporter is not None and self._exporter.failed:
            raise TrackerError("Langfuse did not take spans")


def make(environment: Mapping[str, str], folder: Path) -> LangfuseTracker:
    """The tracker, with what its secret says."""
    url = environment.get("LANGFUSE_BASE_URL") or environment.get("LANGFUSE_HOST", "")
    public = environment.get("LANGFUSE_PUBLIC_KEY", "")
    return LangfuseTracker(public, environment.get("LANGFUSE_SECRET_KEY", ""), url)


def _session_trace(job_id: str) -> str:
    return f"training_session_{job_id}"


def _seconds(start: Timestamp, end: Timestamp) -> float:
    return max(0.0, (end.ToNanoseconds() - start.ToNanoseconds()) / 1e9)


def _parts(start: Timestamp, end: Timestamp, count: int) -> list[tuple[Timestamp, Timestamp]]:
    """The time between them in equal parts."""
    if not count:
        return []
    first, last = start.ToNanoseconds(), max(start.ToNanoseconds(), end.ToNanoseconds())
    edges = []
    for at in range(count + 1):
        edge = Timestamp()
        edge.FromNanoseconds(first + (last - first) * at // count)
        edges.append(edge)
    return list(pairwise(edges))


def _newest(prompt: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest messages that are short enough together; of a longer one its end."""
    found: list[dict[str, Any]] = []
    room = _TEXT
    for message in reversed(prompt):
        text = message["content"]
        if room <= 0:
            break
        found.append(message if len(text) <= room else {**message, "content": text[-room:]})
        room -= len(text)
    return found[::-1]
