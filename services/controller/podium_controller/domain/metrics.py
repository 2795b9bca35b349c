"""What the controller shows to Prometheus. Labels are bounded; a job's series end with it."""

from __future__ import annotations

from contextlib import suppress

from podium.core import skip_reasons
from prometheus_client import Counter, Gauge, Histogram

_PREFIX = "podium_controller"
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)

JOBS = Gauge(f"{_PREFIX}_jobs", "Jobs by state.", ("state",))
PROJECT_JOBS = Gauge(
    f"{_PREFIX}_project_jobs", "Queued and running jobs of a project.", ("project", "state")
)
PROJECT_GPUS = Gauge(
    f"{_PREFIX}_project_gpus", "GPUs of the trainers of a project's jobs.", ("project",)
)
PROJECT_JUDGE_TOKENS = Gauge(
    f"{_PREFIX}_project_judge_tokens",
    "Tokens that the judges of a project's jobs have read and written in this month, UTC.",
    ("project",),
)
PER_LEADER = (JOBS, PROJECT_JOBS, PROJECT_GPUS, PROJECT_JUDGE_TOKENS)
"""What only the controller that runs the jobs may show."""
POOL_EPISODES = Gauge(
    f"{_PREFIX}_pool_episodes", "Episodes in flight at a pool.", ("pool", "project")
)
POOL_WAITING = Gauge(
    f"{_PREFIX}_pool_groups_waiting", "Groups that wait for their turn at a pool.", ("pool",)
)
STEPS = Counter(f"{_PREFIX}_steps_total", "Steps committed.", ("job_id",))
REWARD = Gauge(f"{_PREFIX}_reward_mean", "Mean reward of the last step.", ("job_id",))
SUCCESS = Gauge(f"{_PREFIX}_success_ratio", "Mean success of the last step.", ("job_id",))
TOKENS = Counter(f"{_PREFIX}_tokens_total", "Tokens that the policy sampled.", ("job_id",))
LAST_STEP = Gauge(
    f"{_PREFIX}_last_step_timestamp_seconds", "When the last step was committed.", ("job_id",)
)
STEP_SECONDS = Histogram(
    f"{_PREFIX}_step_duration_seconds", "Seconds of a step by phase.", ("phase",), buckets=_SECONDS
)
STALENESS = Histogram(
    f"{_PREFIX}_staleness_steps",
    "Versions between a group's oldest sampled span and the weights that it trains.",
    buckets=(0, 1, 2, 3, 4, 8, 16, 32, 64),
)
GROUPS = Counter(f"{_PREFIX}_groups_total", "Groups by what became of them.", ("outcome",))
RECOVERIES = Counter(f"{_PREFIX}_recoveries_total", "Losses of a service.", ("service",))
LEADER = Gauge(f"{_PREFIX}_leader", "1 while this controller runs the jobs.")

TRAINED, STALE = "trained", "stale"
"""What becomes of a group that could train; the others' outcome is their skip reason."""


def count_group(outcome: str, amount: int = 1) -> None:
    """Counts groups; reasons that other services make up are `other`."""
    known = outcome in (TRAINED, STALE)
    GROUPS.labels(outcome if known else skip_reasons.bounded(outcome)).inc(amount)


def forget_job(job_id: str) -> None:
    """Removes the series of a job that has ended."""
    for metric in (STEPS, REWARD, SUCCESS, TOKENS, LAST_STEP):
        with suppress(KeyError):
            metric.remove(job_id)
