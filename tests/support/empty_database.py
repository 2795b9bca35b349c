"""The controller's SQLite database before its first job, which is migrated once and then copied."""

from __future__ import annotations

import tempfile
from pathlib import Path

from podium_controller.store import Database

_made: list[bytes] = []


async def empty_database(folder: Path) -> str:
    """Its URL, in the folder; one that is there stays. Migrating takes longer than most tests."""
    path = folder / "controller.db"
    _put(path, await _migrated())
    return f"sqlite+aiosqlite:///{path}"


def _put(path: Path, content: bytes) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


async def _migrated() -> bytes:
    if not _made:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "controller.db"
            database = Database(f"sqlite+aiosqlite:///{file}")
            await database.migrate()
            await database.close()
            _made.append(file.read_bytes())
    return _made[0]
