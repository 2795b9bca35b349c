"""Run by Alembic."""

from __future__ import annotations

from podium.sql.migration import run
from podium_controller.tables import metadata

run(metadata)
