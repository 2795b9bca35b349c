"""What a job's trainer waits for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "jobs", sa.Column("wait_reason", sa.String(128), nullable=False, server_default="")
    )
    op.add_column("jobs", sa.Column("wait_message", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("jobs", "wait_message")
    op.drop_column("jobs", "wait_reason")
