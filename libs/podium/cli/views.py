"""The columns of every kind of thing that the CLI lists."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from podium.cli.output import TableView
from podium.core.job_environments import title_of
from podium.core.total_steps import total_steps
from podium.core.version_state import has_state
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.registry.v1 import registry_service_pb2 as registry
from podium.rollout.v1 import rollout_service_pb2 as rollout
from podium.types.v1 import trajectory_pb2 as trajectories

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp


def state(job: jobs.Job) -> str:
    """`running`, `succeeded`, …"""
    return jobs.JobState.Name(job.state).removeprefix("JOB_STATE_").lower()


def duration(seconds: float) -> str:
    """`42s`, `3m05s`, `2h10m`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def number(value: float | None, digits: int = 3) -> str:
    """A number for people; `-` for none."""
    return "-" if value is None else f"{value:.{digits}f}"


def _metric(metrics: dict[str, float], *names: str) -> float | None:
    return next((metrics[name] for name in names if name in metrics), None)


def local_time(stamp: Timestamp) -> str:
    """Local date and time; empty when not set."""
    if not stamp.seconds:
        return ""
    return stamp.ToDatetime(UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _age(stamp: Timestamp) -> str:
    if not stamp.seconds:
        return "-"
    return duration(max(0.0, datetime.now(UTC).timestamp() - stamp.seconds))


def _steps(job: jobs.Job) -> str:
    total = total_steps(job.spec)
    return f"{job.completed_steps}/{total}" if total else f"{job.completed_steps}"


def _episodes(job: jobs.Job) -> str:
    """`24 running, 8 waiting, 4 of 8 groups collected`; empty when the job does not run."""
    if not job.HasField("episodes_running"):
        return ""
    text = f"{job.episodes_running} running"
    if job.HasField("episodes_waiting"):
        groups = f"{job.groups_collected} of {job.spec.rollout.groups_per_step} groups collected"
        text += f", {job.episodes_waiting} waiting, {groups}"
    return text


def _took(item: jobs.Step) -> str:
    return duration(item.commit_time.ToSeconds() - item.start_time.ToSeconds())


def _hours(seconds: float) -> str:
    """Of GPUs: `1.25`."""
    return f"{seconds / 3600:.2f}"


def _money(usage: jobs.Usage) -> str:
    """What is known of a cost: `12.50 + 0.31 judges`; `-` for nothing."""
    parts = [f"{usage.gpu_cost:.2f}"] if usage.HasField("gpu_cost") else []
    if usage.judge_cost:
        parts.append(f"{usage.judge_cost:.2f} judges")
    return " + ".join(parts) or "-"


def used(usage: jobs.Usage) -> str:
    """What a job has used, in a line."""
    gpus = f"{_hours(usage.trainer_gpu_seconds)} + {_hours(usage.pool_gpu_seconds)} GPU hours"
    judges = usage.judge_prompt_tokens + usage.judge_completion_tokens
    parts = [
        f"{usage.sampled_tokens} tokens sampled",
        f"{usage.trained_tokens} trained",
        f"{usage.teacher_tokens} read by its teacher" if usage.teacher_tokens else "",
        f"{duration(usage.trainer_seconds)} of a trainer",
        f"{gpus} (trainer + pool)",
        f"{judges} tokens of judges" if judges else "",
        f"cost {_money(usage)}" if _money(usage) != "-" else "",
    ]
    return ", ".join(filter(None, parts))


def deleted(deletion: jobs.DeletedTrajectories, evaluation: bool) -> str:
    """Which episodes were deleted, in a line."""
    kind = "version" if evaluation else "step"
    first, last = deletion.first_step, deletion.last_step
    part = f"{kind} {first}" if first == last else f"{kind}s {first} to {last}"
    mode = f", {deletion.mode}" if deletion.mode else ""
    groups = "1 group" if deletion.groups == 1 else f"{deletion.groups} groups"
    return f"deleted to make room: {groups} of {part}{mode}, {local_time(deletion.delete_time)}"


def budget(state: jobs.ProjectBudget) -> list[str]:
    """What a project has used of its budget: a line of this month's, one of all time's."""
    month = state.start_time.ToDatetime(UTC).strftime("%Y-%m")
    spans = (
        (f" in {month} (UTC)", "", "max_"),
        (" in all", "total_", "max_total_"),
    )
    lines = []
    for when, used, most in spans:
        parts = [
            f"{getattr(state, used + name):.2f} of {getattr(state, most + name):g} {what}"
            for name, what in (("gpu_hours", "GPU hours"), ("judge_cost", "for judges"))
            if state.HasField(most + name)  # type: ignore[arg-type]
        ]
        if parts:
            lines.append(f"budget of {state.project}{when}: {', '.join(parts)}")
    return lines


_USED: tuple[tuple[str, Callable[[jobs.UsageRow], str]], ...] = (
    ("PROMPT", lambda row: str(row.usage.prompt_tokens)),
    ("SAMPLED", lambda row: str(row.usage.sampled_tokens)),
    ("TRAINED", lambda row: str(row.usage.trained_tokens)),
    ("TRAINER", lambda row: duration(row.usage.trainer_seconds)),
    ("GPU-H TRAINER", lambda row: _hours(row.usage.trainer_gpu_seconds)),
    ("GPU-H POOL", lambda row: _hours(row.usage.pool_gpu_seconds)),
    (
        "JUDGES",
        lambda row: str(row.usage.judge_prompt_tokens + row.usage.judge_completion_tokens),
    ),
    ("COST", lambda row: _money(row.usage)),
)

USAGE = TableView[jobs.UsageRow](
    name=lambda row: row.job_id,
    columns=(("JOB", lambda row: row.job_id), ("PROJECT", lambda row: row.project), *_USED),
)

PROJECT_USAGE = TableView[jobs.UsageRow](
    name=lambda row: row.project,
    columns=(("PROJECT", lambda row: row.project), *_USED),
)

JOBS = TableView[jobs.Job](
    name=lambda job: job.id,
    columns=(
        ("ID", lambda job: job.id),
        ("STATE", state),
        ("STEPS", _steps),
        ("PHASE", lambda job: job.phase or "-"),
        ("REWARD", lambda job: number(_metric(dict(job.latest_metrics), "reward_mean"))),
        ("SUCCESS", lambda job: number(_metric(dict(job.latest_metrics), "success_mean"))),
        (
            "ETA",
            lambda j: duration(j.remaining_seconds) if j.HasField("remaining_seconds") else "-",
        ),
        ("AGE", lambda job: _age(job.create_time)),
    ),
)

JOB = TableView[jobs.Job](
    name=lambda job: job.id,
    columns=(
        ("id", lambda job: job.id),
        ("project", lambda job: job.spec.project),
        ("state", state),
        ("failure", lambda job: " ".join(filter(None, (job.failure_reason, job.failure_message)))),
        ("phase", lambda job: job.phase),
        ("waits for", lambda job: " ".join(filter(None, (job.wait_reason, job.wait_message)))),
        ("steps", _steps),
        ("episodes", _episodes),
        ("eta", lambda j: duration(j.remaining_seconds) if j.HasField("remaining_seconds") else ""),
        ("model", lambda job: job.spec.base_model),
        ("pool", lambda job: job.pool),
        ("trainer pool", lambda job: job.trainer_pool),
        ("environment", lambda job: title_of(job.spec)),
        ("used", lambda job: used(job.usage) if job.usage.ByteSize() else ""),
        ("created", lambda job: local_time(job.create_time)),
        ("started", lambda job: local_time(job.start_time)),
        ("ended", lambda job: local_time(job.end_time)),
        (
            "metrics",
            lambda job: "  ".join(
                f"{k}={job.latest_metrics[k]:.4g}" for k in sorted(job.latest_metrics)
            ),
        ),
    ),
)

EVENTS = TableView[jobs.Event](
    name=lambda event: str(event.sequence),
    columns=(
        ("SEQ", lambda event: str(event.sequence)),
        ("TIME", lambda event: local_time(event.time)),
        ("TYPE", lambda e: jobs.EventType.Name(e.type).removeprefix("EVENT_TYPE_").lower()),
        ("STEP", lambda event: str(event.step) if event.step else "-"),
        ("MESSAGE", lambda event: event.message),
    ),
)

STEPS = TableView[jobs.Step](
    name=lambda step: str(step.number),
    columns=(
        ("STEP", lambda step: str(step.number)),
        ("REWARD", lambda s: number(_metric(dict(s.metrics), "reward_mean"))),
        ("SUCCESS", lambda s: number(_metric(dict(s.metrics), "success_mean"))),
        ("LOSS", lambda s: number(_metric(dict(s.metrics), "train/loss"), 4)),
        ("ENTROPY", lambda s: number(_metric(dict(s.metrics), "train/entropy"))),
        (
            "DLOGP",
            lambda s: number(_metric(dict(s.metrics), "train/logprob_difference_mean"), 5),
        ),
        ("STALE", lambda s: number(_metric(dict(s.metrics), "staleness_max"), 0)),
        ("TOKENS", lambda s: number(_metric(dict(s.metrics), "tokens_sampled"), 0)),
        ("TOOK", _took),
    ),
)

EVALUATIONS = TableView[jobs.Evaluation](
    name=lambda item: f"{item.version}-{item.mode}",
    columns=(
        ("VERSION", lambda item: str(item.version)),
        ("MODE", lambda item: item.mode),
        ("EPISODES", lambda item: str(item.episodes)),
        ("SUCCESS", lambda item: number(_metric(dict(item.metrics), "success"))),
        (
            "95%",
            lambda item: (
                f"{item.success_low:.3f}..{item.success_high:.3f}" if item.success_high else "-"
            ),
        ),
        ("REWARD", lambda item: number(_metric(dict(item.metrics), "reward"))),
        (
            "95%",
            lambda item: (
                f"{item.reward_low:.3f}..{item.reward_high:.3f}"
                if item.HasField("reward_low")
                else "-"
            ),
        ),
        ("TIME", lambda item: local_time(item.time)),
    ),
)

TRAJECTORIES = TableView[trajectories.Trajectory](
    name=lambda item: item.id,
    columns=(
        ("ID", lambda item: item.id),
        ("SCENARIO", lambda item: item.scenario_id),
        ("REWARD", lambda item: number(item.reward if item.HasField("reward") else None)),
        ("SUCCESS", lambda item: number(_metric(dict(item.metrics), "success"), 0)),
        (
            "STOP",
            lambda item: (
                trajectories.StopReason.Name(item.stop_reason).removeprefix("STOP_REASON_").lower()
            ),
        ),
        (
            "TURNS",
            lambda item: str(
                sum(
                    m.role == trajectories.ROLE_ASSISTANT
                    for h in item.histories
                    for m in h.messages
                )
            ),
        ),
    ),
)

MODELS = TableView[registry.Model](
    name=lambda model: model.name,
    columns=(
        ("MODEL", lambda model: model.name),
        ("LATEST", lambda model: str(model.latest_version)),
        ("VERSIONS", lambda model: str(model.version_count)),
    ),
)

VERSIONS = TableView[registry.Version](
    name=lambda item: f"{item.manifest.model}@{item.manifest.version}",
    columns=(
        ("VERSION", lambda item: f"{item.manifest.model}@{item.manifest.version}"),
        ("ALIASES", lambda item: ",".join(item.aliases) or "-"),
        ("SIZE", lambda item: f"{item.total_bytes / 2**20:.1f} MiB"),
        ("STATE", lambda item: "yes" if has_state(item) else "-"),
        ("SUCCESS", lambda v: number(_metric(dict(v.evaluation_metrics), "success"))),
        ("BASE", lambda item: item.manifest.base_model),
        ("CREATED", lambda item: local_time(item.create_time)),
    ),
)

ENVIRONMENTS = TableView[rollout.EnvironmentInfo](
    name=lambda item: item.name,
    columns=(
        ("NAME", lambda item: item.name),
        ("SPLITS", lambda item: ",".join(item.splits)),
        ("DESCRIPTION", lambda item: item.description),
    ),
)
