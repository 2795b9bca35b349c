"""Brings a database's schema to the revision that a program works with."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.exc import OperationalError, ProgrammingError

from podium.core.errors import FailedPreconditionError

_NO_TABLE = "42P01"
_NO_TABLE_OF_SQLITE = "no such table"


def upgrade(connection: sa.Connection, scripts: Path) -> None:
    """Runs what an Alembic folder has beyond the database's revision.

    Raises:
        FailedPreconditionError: DATABASE_NEWER: its revision is not in the folder;
            DATABASE_OF_ANOTHER: it has none of the tables that its revision stands for.
    """
    config = Config()
    config.set_main_option("script_location", str(scripts))
    config.attributes["connection"] = connection
    _check_known(connection, ScriptDirectory.from_config(config))
    try:
        command.upgrade(config, "head")
    except (OperationalError, ProgrammingError) as error:
        lacks = str(error.orig).startswith(_NO_TABLE_OF_SQLITE)
        if lacks or getattr(error.orig, "sqlstate", None) == _NO_TABLE:
            raise FailedPreconditionError(
                f"the database is another service's: {str(error.orig).splitlines()[0]}",
                reason="DATABASE_OF_ANOTHER",
            ) from error
        raise


def _check_known(connection: sa.Connection, folder: ScriptDirectory) -> None:
    known = [each.revision for each in folder.walk_revisions()]
    unknown = set(MigrationContext.configure(connection).get_current_heads()) - set(known)
    if unknown:
        raise FailedPreconditionError(
            f"the database is at revision {', '.join(sorted(unknown))}, and this program knows"
            f" {known[-1]} to {known[0]}: a newer one has migrated it, or it is another service's."
            " Run that version, or restore the backup that was made before the upgrade",
            reason="DATABASE_NEWER",
        )
