"""The database's own clock: replicas on several machines agree on no other."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Float
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class database_seconds(FunctionElement[float]):  # noqa: N801 : reads as SQL
    """Seconds since the epoch, with fractions, as the database has them."""

    type = Float()
    inherit_cache = True
    name = "database_seconds"


@compiles(database_seconds, "sqlite")
def _sqlite(element: database_seconds, compiler: SQLCompiler, **_: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(database_seconds, "postgresql")
def _postgresql(element: database_seconds, compiler: SQLCompiler, **_: Any) -> str:
    return "extract(epoch from clock_timestamp())::double precision"
