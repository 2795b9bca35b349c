"""The store in memory, and the real one on SQLite, against the same contract.

PostgreSQL is held to it in tests/integration/test_controller_store.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from podium_controller.store import EvaluationStore
from support.batch_contract import *  # noqa: F403 : the tests
from support.empty_database import empty_database
from support.evaluation_contract import *  # noqa: F403 : the tests
from support.evaluation_contract import EvaluationStores
from support.store_contract import *  # noqa: F403 : the tests
from support.stores import MemoryStores, SqlStores
from support.taken_contract import *  # noqa: F403 : the tests
from support.trajectory_contract import *  # noqa: F403 : the tests
from support.usage_contract import *  # noqa: F403 : the tests


@pytest.fixture(params=["memory", "sqlite"])
async def stores(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[MemoryStores | SqlStores]:
    made: MemoryStores | SqlStores = MemoryStores()
    if request.param == "sqlite":
        made = SqlStores(await empty_database(tmp_path))
    yield made
    await made.close()


@pytest.fixture
async def evaluation_stores(tmp_path: Path) -> AsyncIterator[EvaluationStores]:
    """For the contract; see `EvaluationStores`. Nothing uses a store in memory."""
    replica = SqlStores(await empty_database(tmp_path))
    yield lambda **limits: EvaluationStore(replica.another().database, **limits)
    await replica.close()
