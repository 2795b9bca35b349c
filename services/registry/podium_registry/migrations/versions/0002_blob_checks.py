"""Blobs know the crc32c of their chunks, and whether the collector has condemned them."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    with op.batch_alter_table("blobs") as table:
        table.add_column(
            sa.Column("chunk_crc32c", sa.LargeBinary, nullable=False, server_default=sa.text("''"))
        )
        table.add_column(
            sa.Column("deleting", sa.Boolean, nullable=False, server_default=sa.false())
        )


def downgrade() -> None:
    with op.batch_alter_table("blobs") as table:
        table.drop_column("deleting")
        table.drop_column("chunk_crc32c")
