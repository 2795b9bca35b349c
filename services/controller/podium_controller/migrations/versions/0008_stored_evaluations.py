"""What clients measured, scenario by scenario."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_COUNTER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "stored_evaluations",
        sa.Column("number", _COUNTER, autoincrement=True, nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("project", sa.String(63), nullable=False),
        sa.Column("environment", sa.String(128), nullable=False),
        sa.Column("job_id", sa.String(128), nullable=False),
        sa.Column("create_time", sa.BigInteger(), nullable=False),
        sa.Column("request_id", sa.String(128), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("deleted", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_stored_evaluations"),
        sa.UniqueConstraint("id", name="uq_stored_evaluations_id"),
        sa.UniqueConstraint("request_id", name="uq_stored_evaluations_request_id"),
    )
    op.create_table(
        "scenario_results",
        sa.Column("evaluation", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["evaluation"], ["stored_evaluations.number"], name="fk_scenario_results_evaluation"
        ),
        sa.PrimaryKeyConstraint("evaluation", "position", name="pk_scenario_results"),
    )


def downgrade() -> None:
    op.drop_table("scenario_results")
    op.drop_table("stored_evaluations")
