"""Alembic's entry point for the registry's schema."""

from podium.sql.migration import run
from podium_registry.tables import metadata

run(metadata)
