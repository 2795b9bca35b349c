"""The controller's tables. Times are nanoseconds since the epoch, bodies are protobuf."""

from __future__ import annotations

from podium.kit.sql import FreeText
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
    }
)

# SQLite counts up by itself only in a column that is exactly INTEGER.
_Counter = BigInteger().with_variant(Integer, "sqlite")

jobs = Table(
    "jobs",
    metadata,
    # Order of creation, for lists and for the queue's ties.
    Column("number", _Counter, primary_key=True, autoincrement=True),
    Column("id", String(63), nullable=False, unique=True),
    Column("spec", LargeBinary, nullable=False),
    # Of its specification, for lists.
    Column("project", String(63), nullable=False, server_default="default", index=True),
    # Where it runs or ran last; empty before it first ran.
    Column("pool", String(63), nullable=False, server_default=""),
    # The same of the trainer pool; empty for a trainer of its own too.
    Column("trainer_pool", String(63), nullable=False, server_default=""),
    Column("state", Integer, nullable=False, index=True),
    Column("phase", String(32), nullable=False),
    Column("completed_steps", BigInteger, nullable=False),
    Column("create_time", BigInteger, nullable=False),
    Column("queue_time", BigInteger, nullable=False),
    Column("start_time", BigInteger),
    Column("end_time", BigInteger),
    Column("failure_reason", String(128), nullable=False),
    Column("failure_message", FreeText, nullable=False),
    Column("wait_reason", String(128), nullable=False, server_default=""),
    Column("wait_message", FreeText, nullable=False, server_default=""),
    Column("last_sequence", BigInteger, nullable=False),
    Column("latest_step", LargeBinary),
    Column("step_seconds", Float),
    # W3C traceparent of the call that created it.
    Column("trace_parent", String(64), nullable=False),
    # Its client has no more batches for it.
    Column("finishing", Boolean, nullable=False),
    # The last of the reports of its run's meter that was counted.
    Column("usage_mark", BigInteger, nullable=False, server_default="0"),
    # A deleted job's row stays: its id names checkpoints and is never given again.
    Column("deleted", Boolean, nullable=False),
    # They are counted at each look of the scheduler, and have bodies.
    Index(None, "project", "state", "deleted"),
)

requests = Table(
    "requests",
    metadata,
    Column("request_id", String(128), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("job_id", String(63), ForeignKey("jobs.id"), nullable=False),
)

batches = Table(
    "batches",
    metadata,
    Column("job_id", String(63), ForeignKey("jobs.id"), primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("request_id", String(128), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("groups", Integer, nullable=False),
    UniqueConstraint("job_id", "request_id"),
)

events = Table(
    "events",
    metadata,
    Column("job_id", String(63), ForeignKey("jobs.id"), primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("type", Integer, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("message", FreeText, nullable=False),
    Column("step", BigInteger, nullable=False),
    # The mode of an EVALUATION event, whose step is the version.
    Column("mode", String(16)),
)

steps = Table(
    "steps",
    metadata,
    Column("job_id", String(63), ForeignKey("jobs.id"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("commit_time", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("job_id", String(63), ForeignKey("jobs.id"), primary_key=True),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("mode", String(16), primary_key=True),
    Column("body", LargeBinary, nullable=False),
)

groups = Table(
    "trajectory_groups",
    metadata,
    Column("id", String(512), primary_key=True),
    Column("job_id", String(63), ForeignKey("jobs.id"), nullable=False),
    Column("evaluation", Boolean, nullable=False),
    # The training step, or the evaluated version; 0 of groups that no step has taken.
    Column("step", BigInteger, nullable=False),
    # Empty in training.
    Column("mode", String(16), nullable=False),
    Column("position", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index(None, "job_id", "evaluation", "step", "mode", "position"),
)

# Of jobs that train groups as they become ready: the last step that has its groups, and how far
# the draws were then.
draws = Table(
    "draws",
    metadata,
    Column("job_id", String(63), ForeignKey("jobs.id"), primary_key=True),
    Column("step", BigInteger, nullable=False),
    Column("state", FreeText, nullable=False),
)

# How much of the groups above a step has, or a version and mode of an evaluation. The row stays
# when they are deleted to make room, and then says how many there were.
trajectory_sums = Table(
    "trajectory_sums",
    metadata,
    Column("job_id", String(63), ForeignKey("jobs.id"), primary_key=True),
    Column("evaluation", Boolean, primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("mode", String(16), primary_key=True),
    Column("groups", Integer, nullable=False),
    # Of bodies that are stored.
    Column("bytes", BigInteger, nullable=False),
    # When a group was last stored.
    Column("time", BigInteger, nullable=False),
    Column("delete_time", BigInteger),
)

# What judges have used. Rows outlive their jobs: a project cannot earn its budget back.
judge_usage = Table(
    "judge_usage",
    metadata,
    Column("job_id", String(63), ForeignKey("jobs.id"), primary_key=True),
    # In UTC, such as 2026-11.
    Column("month", String(7), primary_key=True),
    Column("project", String(63), nullable=False),
    Column("calls", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("cost", Float, nullable=False),
    Column("cached", BigInteger, nullable=False),
    Index(None, "project", "month"),
)

# What jobs have used, by the hour. Rows outlive their jobs. The budgets of judges count by the
# table above, in the same transactions.
usage = Table(
    "usage",
    metadata,
    Column("job_id", String(63), ForeignKey("jobs.id"), primary_key=True),
    # When it begins, in seconds since the epoch.
    Column("hour", BigInteger, primary_key=True, autoincrement=False),
    Column("project", String(63), nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("sampled_tokens", BigInteger, nullable=False),
    Column("trained_tokens", BigInteger, nullable=False),
    Column("trainer_seconds", Float, nullable=False),
    Column("trainer_gpu_seconds", Float, nullable=False),
    Column("pool_seconds", Float, nullable=False),
    Column("pool_gpu_seconds", Float, nullable=False),
    Column("episode_seconds", Float, nullable=False),
    Column("judge_calls", BigInteger, nullable=False),
    Column("judge_prompt_tokens", BigInteger, nullable=False),
    Column("judge_completion_tokens", BigInteger, nullable=False),
    Column("judge_cost", Float, nullable=False),
    Column("teacher_tokens", BigInteger, nullable=False, server_default="0"),
    Index(None, "hour"),
    # What a project has used in all time is asked for at each of its jobs' steps.
    Index(None, "project", "hour"),
)

# What clients measured. A deleted one's row stays, without a body: its request may be repeated. No
# job is referred to: an evaluation outlives its own, and may be of a model that none has trained.
stored_evaluations = Table(
    "stored_evaluations",
    metadata,
    Column("number", _Counter, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    # Of its body, for lists.
    Column("name", String(256), nullable=False),
    Column("project", String(63), nullable=False),
    Column("environment", String(128), nullable=False),
    Column("job_id", String(128), nullable=False),
    Column("create_time", BigInteger, nullable=False),
    Column("request_id", String(128), nullable=False, unique=True),
    Column("digest", String(64), nullable=False),
    Column("body", LargeBinary, nullable=False),
    # Of its body and its scenarios'.
    Column("bytes", BigInteger, nullable=False),
    Column("deleted", Boolean, nullable=False),
)

scenario_results = Table(
    "scenario_results",
    metadata,
    Column(
        "evaluation",
        BigInteger,
        ForeignKey("stored_evaluations.number"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("holder", String(256), nullable=False),
    # Counts up with every new holder: a fencing token.
    Column("epoch", BigInteger, nullable=False),
    # By the database's clock, seconds since the epoch.
    Column("expires", Float, nullable=False),
)
