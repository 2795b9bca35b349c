"""Alembic's entry point for the registry's schema."""

from podium.kit.sql.migration import run
from podium_registry.adapters.tables import metadata

run(metadata)
