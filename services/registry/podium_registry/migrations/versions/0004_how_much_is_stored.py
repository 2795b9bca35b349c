"""Adds up what blobs take without reading them."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_blobs_size", "blobs", ["size"])


def downgrade() -> None:
    op.drop_index("ix_blobs_size", "blobs")
