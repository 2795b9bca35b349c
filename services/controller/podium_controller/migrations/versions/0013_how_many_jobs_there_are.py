"""Counts the jobs of each project and state without reading them."""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_jobs_project_state_deleted", "jobs", ["project", "state", "deleted"])


def downgrade() -> None:
    op.drop_index("ix_jobs_project_state_deleted", "jobs")
