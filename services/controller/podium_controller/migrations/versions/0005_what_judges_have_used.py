"""What the judges of a job have used, by month."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "judge_usage",
        sa.Column("job_id", sa.String(63), nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("project", sa.String(63), nullable=False),
        sa.Column("calls", sa.BigInteger(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.Float(), nullable=False),
        sa.Column("cached", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_judge_usage_job_id"),
        sa.PrimaryKeyConstraint("job_id", "month", name="pk_judge_usage"),
    )
    op.create_index("ix_judge_usage_project_month", "judge_usage", ["project", "month"])


def downgrade() -> None:
    op.drop_table("judge_usage")
