"""Jobs, their events, steps, evaluations and groups; request ids; leases."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("spec", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.Integer(), nullable=False),
        sa.Column("phase", sa.String(32), nullable=False),
        sa.Column("completed_steps", sa.BigInteger(), nullable=False),
        sa.Column("create_time", sa.BigInteger(), nullable=False),
        sa.Column("queue_time", sa.BigInteger(), nullable=False),
        sa.Column("start_time", sa.BigInteger()),
        sa.Column("end_time", sa.BigInteger()),
        sa.Column("failure_reason", sa.String(128), nullable=False),
        sa.Column("failure_message", sa.Text(), nullable=False),
        sa.Column("last_sequence", sa.BigInteger(), nullable=False),
        sa.Column("latest_step", sa.LargeBinary()),
        sa.Column("step_seconds", sa.Float()),
        sa.Column("trace_parent", sa.String(64), nullable=False),
        sa.Column("deleted", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_jobs"),
        sa.UniqueConstraint("id", name="uq_jobs_id"),
    )
    op.create_index("ix_jobs_state", "jobs", ["state"])
    op.create_table(
        "requests",
        sa.Column("request_id", sa.String(128), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("job_id", sa.String(63), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_requests_job_id"),
        sa.PrimaryKeyConstraint("request_id", name="pk_requests"),
    )
    op.create_table(
        "events",
        sa.Column("job_id", sa.String(63), nullable=False),
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("type", sa.Integer(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("mode", sa.String(16)),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_events_job_id"),
        sa.PrimaryKeyConstraint("job_id", "sequence", name="pk_events"),
    )
    op.create_table(
        "steps",
        sa.Column("job_id", sa.String(63), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("commit_time", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_steps_job_id"),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_steps"),
    )
    op.create_table(
        "evaluations",
        sa.Column("job_id", sa.String(63), nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_evaluations_job_id"),
        sa.PrimaryKeyConstraint("job_id", "version", "mode", name="pk_evaluations"),
    )
    op.create_table(
        "trajectory_groups",
        sa.Column("id", sa.String(512), nullable=False),
        sa.Column("job_id", sa.String(63), nullable=False),
        sa.Column("evaluation", sa.Boolean(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_trajectory_groups_job_id"),
        sa.PrimaryKeyConstraint("id", name="pk_trajectory_groups"),
    )
    op.create_index(
        "ix_trajectory_groups_job_id_evaluation_step_mode_position",
        "trajectory_groups",
        ["job_id", "evaluation", "step", "mode", "position"],
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("holder", sa.String(256), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )


def downgrade() -> None:
    for table in (
        "leases",
        "trajectory_groups",
        "evaluations",
        "steps",
        "events",
        "requests",
        "jobs",
    ):
        op.drop_table(table)
