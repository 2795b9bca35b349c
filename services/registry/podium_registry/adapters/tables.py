"""The registry's tables."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

versions = sa.Table(
    "versions",
    metadata,
    sa.Column("model", sa.String(128), primary_key=True),
    sa.Column("version", sa.BigInteger, primary_key=True),
    sa.Column("manifest", sa.LargeBinary, nullable=False),
    sa.Column("manifest_digest", sa.String(80), nullable=False),
    sa.Column("total_bytes", sa.BigInteger, nullable=False),
    sa.Column("create_time", sa.Float, nullable=False),
    sa.Column("evaluation", sa.JSON, nullable=False),
    # AddStateRequest with the files that were added; null for none.
    sa.Column("state", sa.LargeBinary, nullable=True),
)

# Outlives its version, so that a late retry cannot publish what was deleted.
requests = sa.Table(
    "requests",
    metadata,
    sa.Column("request_id", sa.String(512), primary_key=True),
    sa.Column("manifest_digest", sa.String(80), nullable=False),
    sa.Column("model", sa.String(128), nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
)

version_blobs = sa.Table(
    "version_blobs",
    metadata,
    sa.Column("model", sa.String(128), primary_key=True),
    sa.Column("version", sa.BigInteger, primary_key=True),
    sa.Column("digest", sa.String(80), primary_key=True, index=True),
)

blobs = sa.Table(
    "blobs",
    metadata,
    sa.Column("digest", sa.String(80), primary_key=True),
    # Added up after each upload.
    sa.Column("size", sa.BigInteger, nullable=False, index=True),
    sa.Column("touch_time", sa.Float, nullable=False),
    # Of each MiB, big-endian: damage is seen at any offset without reading it all.
    sa.Column("chunk_crc32c", sa.LargeBinary, nullable=False),
    # Condemned by the collector, whose object may be gone already.
    sa.Column("deleting", sa.Boolean, nullable=False),
    # Its object was found missing, cut or altered; an upload of the same bytes mends it.
    sa.Column("damaged", sa.Boolean, nullable=False, server_default=sa.false()),
)

aliases = sa.Table(
    "aliases",
    metadata,
    sa.Column("model", sa.String(128), primary_key=True),
    sa.Column("alias", sa.String(64), primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("lease_id", sa.String(64), primary_key=True),
    sa.Column("model", sa.String(128), nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("holder", sa.String(256), nullable=False),
    sa.Column("expire_time", sa.Float, nullable=False),
    sa.UniqueConstraint("model", "version", "holder"),
)

changes = sa.Table(
    "changes",
    metadata,
    sa.Column(
        "sequence",
        sa.BigInteger().with_variant(sa.Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    sa.Column("change", sa.Integer, nullable=False),
    sa.Column("model", sa.String(128), nullable=False, index=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("alias", sa.String(64), nullable=False),
    sa.Column("time", sa.Float, nullable=False),
    sqlite_autoincrement=True,
)
