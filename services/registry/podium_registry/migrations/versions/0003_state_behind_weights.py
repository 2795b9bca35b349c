"""A version's state, which may be stored after its weights."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("versions", sa.Column("state", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    op.drop_column("versions", "state")
