"""Watching a real registry: nothing is lost over broken streams, deaths and replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from podium.core.errors import OutOfRangeError, UnavailableError
from podium.kit.registry_client import RegistryClient
from podium.registry.v1 import registry_service_pb2 as pb
from support.empty_database import REGISTRY
from support.full import full
from support.postgres import Postgres
from support.registry_service import RegistryService

CREATED, DELETED = pb.VERSION_CHANGE_CREATED, pb.VERSION_CHANGE_DELETED
ALIAS_SET, ALIAS_DELETED = pb.VERSION_CHANGE_ALIAS_SET, pb.VERSION_CHANGE_ALIAS_DELETED


@pytest.fixture(params=[full("sqlite"), "postgresql"])
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RegistryService]:
    settings: dict[str, object] = {}
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        settings = {"database_url": await REGISTRY.postgresql(server)}
    made = RegistryService(tmp_path, **settings)
    await made.start()
    yield made
    made.kill()


async def test_a_watch_resumes_at_its_token_after_a_killed_registry(
    service: RegistryService,
) -> None:
    async with service.calls() as calls:
        for number in range(3):
            await calls.publish("m", number)
        await calls.publish("other", 0)
        await calls.set_alias("m", "best", 1)
        before = await calls.changes("m", 0, 4)
        assert [change[1:] for change in before] == [
            (CREATED, 0, ""),
            (CREATED, 1, ""),
            (CREATED, 2, ""),
            (ALIAS_SET, 1, "best"),
        ]
        # Happens while nobody watches, and nobody lives.
        await calls.set_alias("m", "best", 2)
        await calls.delete("m", 0)
        await service.restart()
    async with service.calls() as calls:
        await calls.publish("m", 3)
        token = before[1][0]
        after = await calls.changes("m", token, 5)
        assert [change[1:] for change in after] == [
            (CREATED, 2, ""),
            (ALIAS_SET, 1, "best"),
            (ALIAS_SET, 2, "best"),
            (DELETED, 0, ""),
            (CREATED, 3, ""),
        ]
        assert after[:2] == before[2:]
        sequences = [change[0] for change in before[:2] + after]
        assert sequences == sorted(set(sequences))
        with pytest.raises(OutOfRangeError):
            await calls.changes("m", sequences[-1] + 1, 1)


async def test_a_client_watches_through_deaths_and_sees_each_change_once(
    service: RegistryService,
) -> None:
    client = RegistryClient(service.address)
    seen: list[int] = []

    async def watch() -> None:
        async for change in client.watch("m"):
            if change.change == CREATED:
                seen.append(change.version)
            if len(seen) == 24:
                return

    watching = asyncio.create_task(watch())
    try:
        for number in range(24):
            if number in (8, 16):
                await service.restart()
            manifest = pb.Manifest(model="m", version=number, kind=pb.VERSION_KIND_ADAPTER)
            await client.push({"a": b"weights"}, manifest, request_id=f"m/{number}")
        await asyncio.wait_for(watching, 200)
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await client.close()
    assert seen == list(range(24))


async def test_a_drain_ends_a_watch_and_the_registry(service: RegistryService) -> None:
    async with service.calls() as calls:
        await calls.publish("m", 0)
        watching = asyncio.create_task(calls.changes("m", 0, 2))
        await calls.get("m", 0)
        assert await service.stop() == 0
        with pytest.raises(UnavailableError):
            await watching


async def test_a_watch_of_one_replica_misses_nothing_that_two_write(
    postgres: Postgres, tmp_path: Path
) -> None:
    shared = {
        "database_url": await REGISTRY.postgresql(postgres),
        "store_url": (tmp_path / "store").as_uri(),
        "watch_poll_seconds": 0.05,
    }
    replicas = [RegistryService(tmp_path / name, **shared) for name in "ab"]
    try:
        await asyncio.gather(*(replica.start() for replica in replicas))
        async with replicas[0].calls() as first, replicas[1].calls() as second:
            await first.put(b"weights")
            watching = asyncio.create_task(first.changes("", 0, 60))

            async def write(index: int) -> None:
                for number in range(10):
                    await (first, second)[index % 2].publish(f"m-{index}", number)

            await asyncio.gather(*(write(index) for index in range(6)))
            seen = await watching
        assert [each[0] for each in seen] == sorted({each[0] for each in seen})
        assert sorted(each[2] for each in seen) == sorted(list(range(10)) * 6)
    finally:
        for replica in replicas:
            replica.kill()
