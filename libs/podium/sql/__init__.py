"""SQL databases as Podium's services use them: SQLite on a laptop, PostgreSQL in a cluster."""

from podium.sql.database import Database
from podium.sql.paging import decode_page_token, encode_page_token

__all__ = ["Database", "decode_page_token", "encode_page_token"]
