"""Prometheus metrics of the trainer."""

from __future__ import annotations

import time
from collections.abc import Mapping

from podium.core import skip_reasons
from podium.kit.telemetry import exemplar
from prometheus_client import Counter, Gauge, Histogram

from podium_trainer.domain.batch import Batch

_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)

STEP = Gauge("podium_trainer_step", "Optimizer step that the weights are at.", ["job_id"])
LAST_STEP = Gauge(
    "podium_trainer_last_step_timestamp_seconds", "When the last step ended.", ["job_id"]
)
_BY_STEP = {
    "loss": Gauge("podium_trainer_loss", "Loss of the last step.", ["job_id"]),
    "grad_norm": Gauge(
        "podium_trainer_grad_norm", "Norm of the last gradient, before clipping.", ["job_id"]
    ),
    "learning_rate": Gauge(
        "podium_trainer_learning_rate", "Learning rate of the last step.", ["job_id"]
    ),
    "entropy": Gauge(
        "podium_trainer_policy_entropy_nats", "Mean entropy where tokens train.", ["job_id"]
    ),
    "kl_reference": Gauge(
        "podium_trainer_kl_reference_nats", "Mean estimate of the KL to the base.", ["job_id"]
    ),
    "logprob_difference_mean": Gauge(
        "podium_trainer_logprob_difference_nats",
        "Mean absolute difference between trainer and sampler.",
        ["job_id"],
    ),
    "mismatch_kl": Gauge(
        "podium_trainer_mismatch_kl_nats", "KL of sampler and trainer, by k3.", ["job_id"]
    ),
    "ratio_mean": Gauge(
        "podium_trainer_importance_ratio_mean", "Mean importance ratio.", ["job_id"]
    ),
    "ratio_outside_fraction": Gauge(
        "podium_trainer_importance_ratio_outside_fraction",
        "Share of tokens with an importance ratio outside 0.9 to 1.1.",
        ["job_id"],
    ),
    "missing_logprob_fraction": Gauge(
        "podium_trainer_missing_logprob_fraction",
        "Share of tokens whose sampler log-prob nobody recorded.",
        ["job_id"],
    ),
    "effective_sample_fraction": Gauge(
        "podium_trainer_effective_sample_fraction",
        "Effective sample size of the importance weights, as a share of the tokens.",
        ["job_id"],
    ),
    "masked_fraction": Gauge(
        "podium_trainer_masked_fraction",
        "Share of tokens that the sequence mask took out of the loss.",
        ["job_id"],
    ),
    "clip_fraction": Gauge(
        "podium_trainer_clip_fraction", "Share of tokens where the clip counts.", ["job_id"]
    ),
}
STEPS = Counter(
    "podium_trainer_steps_total",
    "Steps by outcome: trained, skipped (no group could train), cancelled, failed.",
    ["outcome"],
)
STEP_SECONDS = Histogram(
    "podium_trainer_step_duration_seconds",
    "Time of a step by phase: read, pack, old_policy, reference, forward, backward, optimizer.",
    ["phase"],
    buckets=_SECONDS,
)
JOB_PHASE_SECONDS = Counter(
    "podium_trainer_job_phase_seconds_total",
    "Seconds of a job's steps by phase, as above.",
    ["job_id", "phase"],
)
OPEN_JOBS = Gauge("podium_trainer_open_jobs", "Jobs that hold a slot.")
STOWED_JOBS = Gauge(
    "podium_trainer_stowed_jobs",
    "Open jobs whose adapter and optimizer are in the registry until their next call.",
)
WAIT_SECONDS = Histogram(
    "podium_trainer_wait_duration_seconds",
    "Time that a step, or the opening of a job, waited for other jobs' steps.",
    buckets=_SECONDS,
)
TOKENS = Counter(
    "podium_trainer_tokens_total",
    "Tokens by kind: trained, packed (computed), flat (as separate sequences).",
    ["kind"],
)
SKIPPED_GROUPS = Counter(
    "podium_trainer_skipped_groups_total", "Groups that did not train, by reason.", ["reason"]
)
SKIPPED_TRAJECTORIES = Counter(
    "podium_trainer_skipped_trajectories_total",
    "Trajectories that did not train though their group did, by reason.",
    ["reason"],
)
CHECKPOINT_SECONDS = Histogram(
    "podium_trainer_checkpoint_duration_seconds",
    "Time to write and publish a version.",
    buckets=_SECONDS,
)
STATE_SECONDS = Histogram(
    "podium_trainer_state_duration_seconds",
    "Time to write and store a version's state, behind its weights.",
    buckets=_SECONDS,
)
CHECKPOINT_FAILURES = Counter(
    "podium_trainer_checkpoint_failures_total",
    "Versions, or their state, that could not be stored.",
)
CHECKPOINT_BYTES = Gauge("podium_trainer_checkpoint_bytes", "Size of the last version.")


def opened(job_id: str, step: int) -> None:
    """A job was opened at `step`."""
    STEP.labels(job_id).set(step)


def stepped(
    job_id: str,
    step: int,
    numbers: Mapping[str, float],
    seconds: Mapping[str, float],
    taken: Batch,
) -> None:
    """A step ended."""
    STEP.labels(job_id).set(step)
    LAST_STEP.labels(job_id).set(time.time())
    for name, gauge in _BY_STEP.items():
        if name in numbers:
            gauge.labels(job_id).set(numbers[name])
    STEPS.labels("trained" if taken.samples else "skipped").inc()
    for phase, duration in seconds.items():
        STEP_SECONDS.labels(phase).observe(duration, exemplar())
        JOB_PHASE_SECONDS.labels(job_id, phase).inc(duration)
    for kind in ("trained", "packed", "flat"):
        TOKENS.labels(kind).inc(numbers[f"tokens_{kind}"])
    for reason in taken.skipped_groups.values():
        SKIPPED_GROUPS.labels(skip_reasons.bounded(reason)).inc()
    for reason in taken.skipped_trajectories.values():
        SKIPPED_TRAJECTORIES.labels(skip_reasons.bounded(reason)).inc()


def closed(job_id: str) -> None:
    """Removes what is labelled with the job."""
    for metric in (STEP, LAST_STEP, JOB_PHASE_SECONDS, *_BY_STEP.values()):
        metric.remove_by_labels({"job_id": job_id})
