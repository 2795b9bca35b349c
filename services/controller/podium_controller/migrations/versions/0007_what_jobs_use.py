"""What jobs use, by the hour; what judges have used already is of the month's first hour."""

from __future__ import annotations

import calendar
import time

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_TOKENS = ("prompt_tokens", "sampled_tokens", "trained_tokens")
_SECONDS = (
    "trainer_seconds",
    "trainer_gpu_seconds",
    "pool_seconds",
    "pool_gpu_seconds",
    "episode_seconds",
)
_JUDGES = ("judge_calls", "judge_prompt_tokens", "judge_completion_tokens")


def upgrade() -> None:
    op.add_column(
        "jobs", sa.Column("usage_mark", sa.BigInteger(), nullable=False, server_default="0")
    )
    usage = op.create_table(
        "usage",
        sa.Column("job_id", sa.String(63), nullable=False),
        sa.Column("hour", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("project", sa.String(63), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _TOKENS),
        *(sa.Column(name, sa.Float(), nullable=False) for name in _SECONDS),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _JUDGES),
        sa.Column("judge_cost", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_usage_job_id"),
        sa.PrimaryKeyConstraint("job_id", "hour", name="pk_usage"),
    )
    op.create_index("ix_usage_hour", "usage", ["hour"])
    query = sa.text(
        "select job_id, month, project, calls, prompt_tokens, completion_tokens, cost"
        " from judge_usage"
    )
    rows = [
        {
            "job_id": row.job_id,
            "hour": calendar.timegm(time.strptime(row.month, "%Y-%m")),
            "project": row.project,
            **dict.fromkeys((*_TOKENS, *_SECONDS), 0),
            "judge_calls": row.calls,
            "judge_prompt_tokens": row.prompt_tokens,
            "judge_completion_tokens": row.completion_tokens,
            "judge_cost": row.cost,
        }
        for row in op.get_bind().execute(query)
    ]
    op.bulk_insert(usage, rows)


def downgrade() -> None:
    op.drop_table("usage")
    op.drop_column("jobs", "usage_mark")
