"""What Alembic runs: upgrades over the connection that the service hands in."""

from __future__ import annotations

from alembic import context

from podium_controller.tables import metadata

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("the controller migrates its own database when it starts")

context.configure(connection=connection, target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
