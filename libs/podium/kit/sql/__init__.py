"""SQL databases as Podium's services use them: SQLite on a laptop, PostgreSQL in a cluster."""

from podium.kit.sql.database import Database
from podium.kit.sql.text import FreeText

__all__ = ["Database", "FreeText"]
