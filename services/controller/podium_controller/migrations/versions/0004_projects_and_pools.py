"""Which project a job counts for, and which pool it runs at."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "jobs", sa.Column("project", sa.String(63), nullable=False, server_default="default")
    )
    op.add_column("jobs", sa.Column("pool", sa.String(63), nullable=False, server_default=""))
    op.create_index("ix_jobs_project", "jobs", ["project"])


def downgrade() -> None:
    op.drop_index("ix_jobs_project", "jobs")
    op.drop_column("jobs", "pool")
    op.drop_column("jobs", "project")
