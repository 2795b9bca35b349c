"""Which trainer pool a job trains at; none for those that have a trainer of their own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "jobs", sa.Column("trainer_pool", sa.String(63), nullable=False, server_default="")
    )


def downgrade() -> None:
    op.drop_column("jobs", "trainer_pool")
