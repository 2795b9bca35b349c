"""How far the draws of jobs are that train groups as they become ready."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "draws",
        sa.Column("job_id", sa.String(63), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_draws_job_id"),
        sa.PrimaryKeyConstraint("job_id", name="pk_draws"),
    )


def downgrade() -> None:
    op.drop_table("draws")
