"""What is asked and done of many versions takes as few statements as of one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from podium.kit.sql import Database
from podium_registry.adapters.blobs import Blobs, measure
from podium_registry.adapters.garbage_collector import GarbageCollector
from podium_registry.adapters.history import ChangeLog
from podium_registry.adapters.object_store import ObjectBlobStore
from podium_registry.adapters.staging import Staging
from podium_registry.adapters.states import States
from podium_registry.adapters.versions import Versions
from support.empty_database import REGISTRY
from support.registry import Registry
from support.statements import statements


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    database = Database(await REGISTRY.sqlite(tmp_path))
    store, staging = ObjectBlobStore(tmp_path.as_uri()), Staging(tmp_path / "uploads")
    blobs, history = Blobs(database, store, staging, max_bytes=100), ChangeLog(database, 60)
    collector = GarbageCollector(database, store, staging, grace_seconds=1, upload_ttl_seconds=1)
    versions, states = Versions(database, history, blobs), States(database, history, blobs)
    yield Registry(database, store, staging, blobs, collector, history, versions, states)
    await database.close()


async def test_a_page_of_versions_is_read_at_once(registry: Registry) -> None:
    for version in range(6):
        await registry.publish("job", version)
    await registry.versions.set_alias("job", "best", 2, None)

    async def read(size: int) -> int:
        with statements() as sent:
            page, _ = await registry.versions.page("job", size, "")
        assert [each.manifest.version for each in page] == list(range(5, 5 - size, -1))
        if size == 5:
            assert [list(each.aliases) for each in page] == [["latest"], [], [], ["best"], []]
        return len(sent)

    assert await read(5) == await read(1)


async def test_what_is_not_retained_is_deleted_at_once(registry: Registry) -> None:
    counts = []
    for number in (3, 9):
        model = f"job-{number}"
        for version in range(number):
            await registry.publish(model, version)
        await registry.versions.set_alias(model, "best", 0, None)
        with statements() as sent:
            deleted = await registry.versions.retain(model, 1, 0, "", lower_is_better=False)
        assert deleted == list(range(1, number - 1))
        counts.append(len(sent))
    assert counts[0] == counts[1]


async def test_what_is_stored_is_added_up_without_being_read(registry: Registry) -> None:
    with statements() as sent:
        await measure(registry.database)
    ((added, values),) = [each for each in sent if each[0].startswith("SELECT")]
    async with registry.database.read() as connection:
        plan = await connection.exec_driver_sql(f"explain query plan {added}", values)
        (told,) = [row.detail for row in plan]
    assert "USING COVERING INDEX" in told
