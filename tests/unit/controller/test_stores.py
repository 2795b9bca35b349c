"""The store in memory, and the real one on SQLite, against the same contract.

PostgreSQL is held to it in tests/integration/test_controller_store.py.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from podium_controller.store import Database, EvaluationStore
from support.batch_contract import *  # noqa: F403 : the tests
from support.evaluation_contract import *  # noqa: F403 : the tests
from support.evaluation_contract import EvaluationStores
from support.store_contract import *  # noqa: F403 : the tests
from support.stores import MemoryStores, SqlStores
from support.taken_contract import *  # noqa: F403 : the tests
from support.trajectory_contract import *  # noqa: F403 : the tests
from support.usage_contract import *  # noqa: F403 : the tests


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database without jobs; migrations take longer than any test."""
    path = tmp_path_factory.mktemp("store") / "controller.db"

    async def migrate() -> None:
        database = Database(f"sqlite+aiosqlite:///{path}")
        await database.migrate()
        await database.close()

    asyncio.run(migrate())
    return path


@pytest.fixture(params=["memory", "sqlite"])
async def stores(
    request: pytest.FixtureRequest, migrated: Path, tmp_path: Path
) -> AsyncIterator[MemoryStores | SqlStores]:
    made: MemoryStores | SqlStores = MemoryStores()
    if request.param == "sqlite":
        shutil.copy(migrated, tmp_path / "controller.db")
        made = SqlStores(f"sqlite+aiosqlite:///{tmp_path}/controller.db")
    yield made
    await made.close()


@pytest.fixture
async def evaluation_stores(migrated: Path, tmp_path: Path) -> AsyncIterator[EvaluationStores]:
    """For the contract; see `EvaluationStores`. Nothing uses a store in memory."""
    shutil.copy(migrated, tmp_path / "evaluations.db")
    replica = SqlStores(f"sqlite+aiosqlite:///{tmp_path}/evaluations.db")
    yield lambda **limits: EvaluationStore(replica.another().database, **limits)
    await replica.close()
