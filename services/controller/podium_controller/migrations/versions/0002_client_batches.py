"""Batches that clients submit, and the end that they announce."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "batches",
        sa.Column("job_id", sa.String(63), nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("request_id", sa.String(128), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("groups", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_batches_job_id"),
        sa.PrimaryKeyConstraint("job_id", "step", name="pk_batches"),
        sa.UniqueConstraint("job_id", "request_id", name="uq_batches_job_id"),
    )
    op.add_column(
        "jobs", sa.Column("finishing", sa.Boolean(), nullable=False, server_default=sa.false())
    )


def downgrade() -> None:
    op.drop_column("jobs", "finishing")
    op.drop_table("batches")
