"""What every service's Alembic `env.py` does: run on the connection that it was handed."""

from __future__ import annotations

from alembic import context
from sqlalchemy import MetaData


def run(metadata: MetaData) -> None:
    """Runs the migrations of the current Alembic context."""
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=metadata,
        transactional_ddl=True,
        transaction_per_migration=False,
    )
    context.run_migrations()
