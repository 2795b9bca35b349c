"""A TrainingJob resource: what it asks for, and how its status is written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import yaml
from podium.core.contract import parse_yaml
from podium.core.errors import Violation
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2

Manifest = dict[str, Any]

FINALIZER = "podium.dev/job"
ACCEPTED = "Accepted"
_METRICS = {"reward": "reward_mean", "success": "success_mean"}


def parse(manifest: Manifest) -> tuple[spec_pb2.JobSpec, list[Violation]]:
    """The job that it asks for, and everything that is wrong with it."""
    wanted = (manifest.get("spec") or {}).get("job") or {}
    spec, violations = parse_yaml(yaml.safe_dump(wanted, sort_keys=False), spec_pb2.JobSpec)
    found = [Violation(f"spec.job.{each.field}", each.description) for each in violations]
    return spec, found


def digest(manifest: Manifest) -> str:
    """Of the job that it asks for."""
    wanted = (manifest.get("spec") or {}).get("job") or {}
    return hashlib.sha256(yaml.safe_dump(wanted).encode()).hexdigest()[:16]


def is_paused(manifest: Manifest) -> bool:
    """Whether the job is to rest."""
    return bool((manifest.get("spec") or {}).get("paused"))


def job_status(job: pb.Job) -> Manifest:
    """What a job is at, as the status shows it."""
    status: Manifest = {
        "jobId": job.id,
        "state": pb.JobState.Name(job.state).removeprefix("JOB_STATE_").capitalize(),
        "steps": job.spec.training.steps,
        "completedSteps": job.completed_steps,
        "phase": job.phase,
        "reason": job.failure_reason or job.wait_reason,
        "message": job.failure_message or job.wait_message,
    }
    for name, metric in _METRICS.items():
        if metric in job.latest_metrics:
            # Text, as numbers with a fraction are not for the Kubernetes API.
            status[name] = f"{job.latest_metrics[metric]:.4g}"
    if job.HasField("start_time"):
        status["startTime"] = job.start_time.ToJsonString()
    if job.HasField("end_time"):
        status["completionTime"] = job.end_time.ToJsonString()
    return {name: value for name, value in status.items() if value != ""}


def condition(
    manifest: Manifest, *, accepted: bool, reason: str, message: str, now: str
) -> Manifest:
    """The condition that says whether there is a job of it, since when it says so."""
    status = "True" if accepted else "False"
    before: Manifest = next(
        (
            each
            for each in (manifest.get("status") or {}).get("conditions") or []
            if each["type"] == ACCEPTED
        ),
        {},
    )
    since = before.get("lastTransitionTime", now) if before.get("status") == status else now
    return {
        "type": ACCEPTED,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
        "observedGeneration": manifest["metadata"].get("generation", 0),
    }


def said(violations: Sequence[Violation]) -> str:
    """All of them, for people."""
    return "; ".join(str(each) for each in violations)
