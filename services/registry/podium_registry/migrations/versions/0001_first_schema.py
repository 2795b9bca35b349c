"""First schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "versions",
        sa.Column("model", sa.String(128), primary_key=True),
        sa.Column("version", sa.BigInteger, primary_key=True),
        sa.Column("manifest", sa.LargeBinary, nullable=False),
        sa.Column("manifest_digest", sa.String(80), nullable=False),
        sa.Column("total_bytes", sa.BigInteger, nullable=False),
        sa.Column("create_time", sa.Float, nullable=False),
        sa.Column("evaluation", sa.JSON, nullable=False),
    )
    op.create_table(
        "requests",
        sa.Column("request_id", sa.String(512), primary_key=True),
        sa.Column("manifest_digest", sa.String(80), nullable=False),
        sa.Column("model", sa.String(128), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "version_blobs",
        sa.Column("model", sa.String(128), primary_key=True),
        sa.Column("version", sa.BigInteger, primary_key=True),
        sa.Column("digest", sa.String(80), primary_key=True),
    )
    op.create_index("ix_version_blobs_digest", "version_blobs", ["digest"])
    op.create_table(
        "blobs",
        sa.Column("digest", sa.String(80), primary_key=True),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("touch_time", sa.Float, nullable=False),
        sa.Column("chunk_crc32c", sa.LargeBinary, nullable=False),
        sa.Column("deleting", sa.Boolean, nullable=False),
    )
    op.create_table(
        "aliases",
        sa.Column("model", sa.String(128), primary_key=True),
        sa.Column("alias", sa.String(64), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "leases",
        sa.Column("lease_id", sa.String(64), primary_key=True),
        sa.Column("model", sa.String(128), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.String(256), nullable=False),
        sa.Column("expire_time", sa.Float, nullable=False),
        sa.UniqueConstraint("model", "version", "holder"),
    )
    op.create_table(
        "changes",
        sa.Column(
            "sequence",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("change", sa.Integer, nullable=False),
        sa.Column("model", sa.String(128), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("alias", sa.String(64), nullable=False),
        sa.Column("time", sa.Float, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_changes_model", "changes", ["model"])


def downgrade() -> None:
    for table in ("changes", "leases", "aliases", "blobs", "version_blobs", "requests", "versions"):
        op.drop_table(table)
