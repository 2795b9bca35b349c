"""Run by Alembic."""

from __future__ import annotations

from podium.kit.sql.migration import run
from podium_controller.store.tables import metadata

run(metadata)
