"""Finds what one project has used, of a month or of all time, without reading the others'."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_usage_project_hour", "usage", ["project", "hour"])


def downgrade() -> None:
    op.drop_index("ix_usage_project_hour", "usage")
