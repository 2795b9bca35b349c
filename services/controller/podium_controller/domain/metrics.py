"""What the controller shows to Prometheus. Labels are bounded; a job's series end with it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from podium.core import skip_reasons
from podium.jobs.v1 import job_service_pb2 as pb
from prometheus_client import Counter, Gauge, Histogram

from podium_controller.domain import reasons

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
TRAJECTORY_BYTES = Gauge(
    f"{_PREFIX}_trajectory_store_bytes",
    "Bytes of all stored trajectories, before the database compresses them; of the leader.",
)
TRAJECTORY_LIMIT = Gauge(
    f"{_PREFIX}_trajectory_store_limit_bytes",
    "Above this the oldest trajectories are deleted; +Inf without a limit.",
)
TRAJECTORY_GROUPS_DELETED = Counter(
    f"{_PREFIX}_trajectory_groups_deleted_total",
    "Groups of trajectories that were deleted for their age, or to make room (size).",
    ("reason",),
)
TRAJECTORY_BYTES_DELETED = Counter(
    f"{_PREFIX}_trajectory_bytes_deleted_total", "Bytes of those.", ("reason",)
)
JOB_GPU_SECONDS = Counter(
    f"{_PREFIX}_job_gpu_seconds_total",
    "GPU seconds of a job that runs: of its trainer, and its share of its pool.",
    ("job_id", "project", "kind"),
)
JOB_TOKENS = Counter(
    f"{_PREFIX}_job_tokens_total",
    "Tokens of a job that runs: of prompts, sampled, and trained on.",
    ("job_id", "project", "kind"),
)
JOB_JUDGE_COST = Counter(
    f"{_PREFIX}_job_judge_cost_usd_total",
    "What the judges of a job that runs have cost, by their prices, taken to be in dollars.",
    ("job_id", "project"),
)
QUEUED_SINCE = Gauge(
    f"{_PREFIX}_queued_since_timestamp_seconds",
    "Since when the job is queued that has waited longest, by what it waits for.",
    ("project", "reason"),
)
PROJECT_BUDGET_USED = Gauge(
    f"{_PREFIX}_project_budget_used_ratio",
    "Part of a project's budget that its jobs have used, by the name of the bound; from 1 on they "
    "pause. Those of a month (UTC) begin anew, those of all time (maxTotal…) do not.",
    ("project", "bound"),
)
TRAINER_POOL_JOBS = Gauge(
    f"{_PREFIX}_trainer_pool_jobs", "Jobs that train at a trainer pool.", ("pool",)
)
TRAINER_POOL_PLACES = Gauge(
    f"{_PREFIX}_trainer_pool_places",
    "How many a trainer pool takes at once; 0 while that is not known.",
    ("pool",),
)
TRAINER_POOL_WAITING = Gauge(
    f"{_PREFIX}_trainer_pool_waiting",
    "Queued jobs that would run now if a trainer pool answered, each at one pool.",
    ("pool",),
)
PER_LEADER = (
    JOBS,
    PROJECT_JOBS,
    PROJECT_GPUS,
    PROJECT_JUDGE_TOKENS,
    PROJECT_BUDGET_USED,
    TRAINER_POOL_JOBS,
    TRAINER_POOL_PLACES,
    TRAINER_POOL_WAITING,
    QUEUED_SINCE,
)
"""What only the controller that runs the jobs may show."""
POOL_EPISODES = Gauge(
    f"{_PREFIX}_pool_episodes", "Episodes in flight at a pool.", ("pool", "project")
)
POOL_WAITING = Gauge(
    f"{_PREFIX}_pool_groups_waiting", "Groups that wait for their turn at a pool.", ("pool",)
)
JOBS_ENDED = Counter(
    f"{_PREFIX}_jobs_ended_total",
    "Jobs that ended under this controller, by state and, of those that failed, the reason.",
    ("project", "state", "reason"),
)
STEPS = Counter(f"{_PREFIX}_steps_total", "Steps committed.", ("job_id",))
STEP = Gauge(f"{_PREFIX}_step", "Last step committed.", ("job_id",))
STEP_TARGET = Gauge(f"{_PREFIX}_step_target", "Steps that the job is to take.", ("job_id",))
STEP_INTERVAL = Gauge(
    f"{_PREFIX}_step_interval_seconds", "Seconds from step to step, of the last few.", ("job_id",)
)
PROGRESS = Gauge(
    f"{_PREFIX}_last_progress_timestamp_seconds",
    "When a running job last came forward: its start, a step or an evaluation, whoever led then.",
    ("job_id",),
)
WAITING_SINCE = Gauge(
    f"{_PREFIX}_waiting_since_timestamp_seconds",
    "Since when a running job waits, and for what; none while it does not.",
    ("job_id", "reason"),
)
TRAINER_ENDS = Counter(
    f"{_PREFIX}_trainer_ends_total",
    "Pods of a job's trainers that ended before the job, by what the cluster says of it.",
    ("job_id", "reason"),
)
JOB_GROUPS = Counter(
    f"{_PREFIX}_job_groups_total", "A job's groups by what became of them.", ("job_id", "outcome")
)
JOB_REPLACED = Counter(
    f"{_PREFIX}_job_groups_replaced_total",
    "A job's groups that could not teach, and for which others stood in their steps.",
    ("job_id",),
)
JOB_CARRIED = Counter(
    f"{_PREFIX}_job_groups_carried_total",
    "A job's groups that were begun for one step and trained in a later one.",
    ("job_id",),
)
CONCURRENT_GROUPS = Gauge(
    f"{_PREFIX}_job_concurrent_groups",
    "A job's groups that are collected, or wait for their turn at the pool; above staleness 0.",
    ("job_id",),
)
CONCURRENT_GROUPS_LIMIT = Gauge(
    f"{_PREFIX}_job_concurrent_groups_limit",
    "How many of these there may be: it changes with adaptive_concurrency.",
    ("job_id",),
)
JOB_STALENESS = Gauge(
    f"{_PREFIX}_job_staleness_steps", "Greatest staleness of the last step.", ("job_id",)
)
PHASE_SECONDS = Counter(
    f"{_PREFIX}_job_phase_seconds_total",
    "Seconds that a job has spent in each phase; phases may overlap.",
    ("job_id", "phase"),
)
EVALUATION_REWARD = Gauge(
    f"{_PREFIX}_evaluation_reward_mean",
    "Mean reward of the last evaluation, sampled and greedy.",
    ("job_id", "mode"),
)
EVALUATION_SUCCESS = Gauge(
    f"{_PREFIX}_evaluation_success_ratio",
    "Mean success of the last evaluation, sampled and greedy.",
    ("job_id", "mode"),
)
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


TRAINER_REASONS = ("TRAINER_CRASHED", "TRAINER_OUT_OF_MEMORY", "TRAINER_EVICTED")
"""How the pod of a trainer may end and come back."""

_PER_JOB = (
    STEPS,
    STEP,
    STEP_TARGET,
    STEP_INTERVAL,
    PROGRESS,
    WAITING_SINCE,
    TRAINER_ENDS,
    JOB_GROUPS,
    JOB_REPLACED,
    JOB_CARRIED,
    CONCURRENT_GROUPS,
    CONCURRENT_GROUPS_LIMIT,
    JOB_STALENESS,
    PHASE_SECONDS,
    EVALUATION_REWARD,
    EVALUATION_SUCCESS,
    REWARD,
    SUCCESS,
    TOKENS,
    LAST_STEP,
)

_waits: dict[str, str] = {}
"""What jobs are shown to wait for."""
_queues: set[tuple[str, str]] = set()
"""The labels of the queue that is shown."""


def count_group(job_id: str, outcome: str, amount: int = 1) -> None:
    """Counts groups; reasons that other services make up are `other`."""
    known = outcome in (TRAINED, STALE)
    word = outcome if known else skip_reasons.bounded(outcome)
    GROUPS.labels(word).inc(amount)
    JOB_GROUPS.labels(job_id, word).inc(amount)


def begin_job(job_id: str, step: int, target: int, since_ns: int) -> None:
    """A job runs here from now on, and last came forward at `since_ns`; 0 for now."""
    STEP.labels(job_id).set(step)
    STEP_TARGET.labels(job_id).set(target)
    PROGRESS.labels(job_id).set(since_ns / 1e9 or time.time())
    # An increase is seen from what was there before it.
    STEPS.labels(job_id)
    TOKENS.labels(job_id)
    for reason in TRAINER_REASONS:
        TRAINER_ENDS.labels(job_id, reason)


def stepped(job_id: str, step: int, numbers: Mapping[str, float], at_ns: int) -> None:
    """A step was committed."""
    STEPS.labels(job_id).inc()
    STEP.labels(job_id).set(step)
    LAST_STEP.labels(job_id).set(at_ns / 1e9)
    PROGRESS.labels(job_id).set(at_ns / 1e9)
    TOKENS.labels(job_id).inc(numbers.get("tokens_sampled", 0.0))
    JOB_REPLACED.labels(job_id).inc(numbers.get("groups_replaced", 0.0))
    JOB_CARRIED.labels(job_id).inc(numbers.get("groups_carried", 0.0))
    STALENESS.observe(numbers.get("staleness_max", 0.0))
    JOB_STALENESS.labels(job_id).set(numbers.get("staleness_max", 0.0))
    if "reward_mean" in numbers:
        REWARD.labels(job_id).set(numbers["reward_mean"])
    if "success_mean" in numbers:
        SUCCESS.labels(job_id).set(numbers["success_mean"])


def evaluated(job_id: str, mode: str, numbers: Mapping[str, float]) -> None:
    """An evaluation was committed."""
    PROGRESS.labels(job_id).set(time.time())
    if "reward" in numbers:
        EVALUATION_REWARD.labels(job_id, mode).set(numbers["reward"])
    if "success" in numbers:
        EVALUATION_SUCCESS.labels(job_id, mode).set(numbers["success"])


def waiting(job_id: str, reason: str) -> None:
    """What a running job waits for now; empty for nothing."""
    label = reasons.bounded(reason)
    if label == _waits.get(job_id, ""):
        return
    WAITING_SINCE.remove_by_labels({"job_id": job_id})
    _waits.pop(job_id, None)
    if label:
        _waits[job_id] = label
        WAITING_SINCE.labels(job_id, label).set(time.time())


def show_queue(queued: Iterable[tuple[str, str, int]]) -> None:
    """The queued jobs: a project's label, what they wait for, and since when in nanoseconds."""
    oldest: dict[tuple[str, str], int] = {}
    for project, reason, since_ns in queued:
        key = (project, reasons.bounded(reason))
        oldest[key] = min(since_ns, oldest.get(key, since_ns))
    for project, reason in _queues - set(oldest):
        QUEUED_SINCE.remove_by_labels({"project": project, "reason": reason})
    _queues.clear()
    for key, since_ns in oldest.items():
        _queues.add(key)
        QUEUED_SINCE.labels(*key).set(since_ns / 1e9)


def trainer_ended(job_id: str, reason: str) -> None:
    """A pod of the job's trainer has ended, and comes back."""
    TRAINER_ENDS.labels(job_id, reasons.bounded(reason)).inc()


def job_ended(project: str, state: str, reason: str) -> None:
    """A job has ended: its project's label, its state, and its reason if it failed."""
    JOBS_ENDED.labels(project, state, reasons.bounded(reason)).inc()


_GPU_SECONDS = {"trainer": "trainer_gpu_seconds", "pool": "pool_gpu_seconds"}
_TOKENS = {
    "prompt": "prompt_tokens",
    "sampled": "sampled_tokens",
    "trained": "trained_tokens",
    "teacher": "teacher_tokens",
}


def count_usage(job_id: str, project: str, before: pb.Usage, now: pb.Usage) -> None:
    """Counts what a job has used since it was counted before."""
    for metric, kinds in ((JOB_GPU_SECONDS, _GPU_SECONDS), (JOB_TOKENS, _TOKENS)):
        for kind, name in kinds.items():
            more = getattr(now, name) - getattr(before, name)
            metric.labels(job_id, project, kind).inc(max(0.0, more))
    cost = max(0.0, now.judge_cost - before.judge_cost)
    JOB_JUDGE_COST.labels(job_id, project).inc(cost)


def show_budget(project: str, bound: str, used: float, most: float) -> None:
    """How much of one bound of a project's budget is used; of a bound of 0, all."""
    PROJECT_BUDGET_USED.labels(project, bound).set(used / most if most else 1.0)


def forget_usage(job_id: str) -> None:
    """Removes the series of what a job uses, which does not run any more."""
    for metric in (JOB_GPU_SECONDS, JOB_TOKENS, JOB_JUDGE_COST):
        metric.remove_by_labels({"job_id": job_id})


def forget_job(job_id: str) -> None:
    """Removes the series of a job that does not run here any more."""
    _waits.pop(job_id, None)
    for metric in _PER_JOB:
        metric.remove_by_labels({"job_id": job_id})
