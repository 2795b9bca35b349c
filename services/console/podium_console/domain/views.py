"""What the API says, as plain values for JSON."""

from __future__ import annotations

import math
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from podium.core.contract import to_yaml
from podium.core.findings import finding_of
from podium.core.job_environments import title_of
from podium.core.total_steps import total_steps
from podium.core.version_state import all_files, has_state
from podium.inference.v1 import inference_service_pb2 as inference
from podium.jobs.v1 import job_service_pb2 as pb
from podium.registry.v1 import registry_service_pb2 as registry

from podium_console.domain.series import numbers, rounded

ENDED = frozenset({pb.JOB_STATE_SUCCEEDED, pb.JOB_STATE_FAILED, pb.JOB_STATE_CANCELLED})
"""States that a job never leaves."""
LIVE = tuple(
    state for state in pb.JobState.values() if state not in ENDED | {pb.JOB_STATE_UNSPECIFIED}
)
_WORDS = 1000
_ROW_METRICS = frozenset({"reward_mean", "success_mean"})


def seconds(time: Timestamp) -> float | None:
    """Unix time; None for a time that is not set."""
    return time.seconds + round(time.nanos / 1e9, 3) if time.seconds or time.nanos else None


def state(job: pb.Job) -> str:
    """`running`, `queued`, …"""
    return pb.JobState.Name(job.state).removeprefix("JOB_STATE_").lower()


def job(found: pb.Job) -> dict[str, Any]:
    """A job, as lists and its own page show it."""
    spec = found.spec
    return {
        "id": found.id,
        "state": state(found),
        "ended": found.state in ENDED,
        "phase": found.phase,
        "environment": title_of(spec),
        "base_model": spec.base_model,
        "project": spec.project,
        "client_driven": spec.HasField("client"),
        "steps": total_steps(spec),
        "completed_steps": found.completed_steps,
        "groups_per_step": spec.rollout.groups_per_step,
        "group_size": spec.rollout.group_size,
        "created": seconds(found.create_time),
        "started": seconds(found.start_time),
        "ended_at": seconds(found.end_time),
        "remaining_seconds": rounded(found.remaining_seconds)
        if found.HasField("remaining_seconds")
        else None,
        "failure": cut(found.failure_message),
        "failure_reason": found.failure_reason,
        "wait": cut(found.wait_message),
        "wait_reason": found.wait_reason,
        "pool": found.pool,
        "trainer_pool": found.trainer_pool,
        "episodes_running": _count(found, "episodes_running"),
        "episodes_waiting": _count(found, "episodes_waiting"),
        "groups_collected": _count(found, "groups_collected"),
        "metrics": numbers(found.latest_metrics.items()),
        "not_finite": sorted(n for n, v in found.latest_metrics.items() if not math.isfinite(v)),
    }


def job_row(found: pb.Job) -> dict[str, Any]:
    """A job in a list: with those of its numbers that a row has room for."""
    plain = job(found)
    return plain | {"metrics": {n: v for n, v in plain["metrics"].items() if n in _ROW_METRICS}}


def whole_job(found: pb.Job) -> dict[str, Any]:
    """A job with its specification as a job file, and what it has used."""
    return {**job(found), "spec": to_yaml(found.spec), "usage": usage(found.usage)}


def usage(found: pb.Usage) -> dict[str, Any]:
    """What was used; a cost is None where the installation has no price."""
    return {
        "prompt_tokens": found.prompt_tokens,
        "sampled_tokens": found.sampled_tokens,
        "trained_tokens": found.trained_tokens,
        "teacher_tokens": found.teacher_tokens,
        "trainer_seconds": rounded(found.trainer_seconds),
        "trainer_gpu_seconds": rounded(found.trainer_gpu_seconds),
        "pool_gpu_seconds": rounded(found.pool_gpu_seconds),
        "judge_tokens": found.judge_prompt_tokens + found.judge_completion_tokens,
        "judge_cost": rounded(found.judge_cost),
        "gpu_cost": rounded(found.gpu_cost) if found.HasField("gpu_cost") else None,
    }


def budget(found: pb.ProjectBudget) -> dict[str, Any]:
    """What a project may use in this month and in all, None for no bound, and what it has."""
    told: dict[str, Any] = {"project": found.project, "month": seconds(found.start_time)}
    for name in ("gpu_hours", "judge_cost"):
        for used, most in ((name, f"max_{name}"), (f"total_{name}", f"max_total_{name}")):
            bounded = found.HasField(most)  # type: ignore[arg-type]
            told[most] = getattr(found, most) if bounded else None
            told[used] = rounded(getattr(found, used))
    return told


def event(found: pb.Event) -> dict[str, Any]:
    """One event."""
    return {
        "sequence": found.sequence,
        "type": pb.EventType.Name(found.type).removeprefix("EVENT_TYPE_").lower(),
        "time": seconds(found.time),
        "message": cut(found.message),
        "finding": finding_of(found.message),
        "step": found.step,
    }


def step(found: pb.Step) -> dict[str, Any]:
    """One committed step."""
    return {
        "number": found.number,
        "version": found.version,
        "time": seconds(found.commit_time),
        "metrics": numbers(found.metrics.items()),
    }


def evaluation(found: pb.Evaluation) -> dict[str, Any]:
    """One evaluation."""
    return {
        "version": found.version,
        "mode": found.mode,
        "episodes": found.episodes,
        "metrics": numbers(found.metrics.items()),
        "success_low": rounded(found.success_low),
        "success_high": rounded(found.success_high),
        "time": seconds(found.time),
    }


def update(found: pb.WatchJobResponse) -> dict[str, Any]:
    """One message of a watch."""
    return {
        "event": event(found.event),
        "job": job(found.job),
        "step": step(found.step) if found.HasField("step") else None,
        "evaluation": evaluation(found.evaluation) if found.HasField("evaluation") else None,
    }


def version(found: registry.Version) -> dict[str, Any]:
    """One checkpoint."""
    manifest = found.manifest
    return {
        "model": manifest.model,
        "version": manifest.version,
        "kind": registry.VersionKind.Name(manifest.kind).removeprefix("VERSION_KIND_").lower(),
        "base_model": manifest.base_model,
        "aliases": sorted(found.aliases),
        "created": seconds(found.create_time),
        "bytes": found.total_bytes,
        "files": len(all_files(found)),
        "has_state": has_state(found),
        "digest": found.manifest_digest,
        "parents": [ref(parent) for parent in manifest.parents],
        "metrics": numbers(manifest.metrics.items()),
        "evaluation": numbers(found.evaluation_metrics.items()),
    }


def ref(found: registry.VersionRef) -> dict[str, Any]:
    """What a version came from."""
    return {"model": found.model, "version": found.version}


def engine(found: inference.GetEngineResponse) -> dict[str, Any]:
    """What a pool serves from."""
    mode = inference.WeightMode.Name(found.weight_mode).removeprefix("WEIGHT_MODE_").lower()
    return {
        "base_model": found.base_model,
        "weight_mode": mode,
        "max_model_len": found.max_model_len,
        "dtype": found.dtype,
        "tool_format": found.rendering.tool_format,
        "reasoning_parser": found.rendering.reasoning_parser,
        "chat_template_digest": found.rendering.chat_template_digest,
    }


def policy(found: inference.LoadedPolicy) -> dict[str, Any]:
    """What a pool serves."""
    return {
        "job": found.job,
        "version": found.version,
        "loaded": seconds(found.load_time),
        "running_requests": found.running_requests,
    }


def cut(text: str, most: int = _WORDS) -> str:
    """At most so many characters, and where it was cut a word about it."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most} characters more)"


def _count(found: pb.Job, name: str) -> int | None:
    return getattr(found, name) if found.HasField(name) else None  # type: ignore[arg-type]
