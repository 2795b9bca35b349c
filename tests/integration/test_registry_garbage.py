"""Garbage collection over real gRPC, against everybody who may need the blobs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from podium.core.errors import FailedPreconditionError, NotFoundError, PodiumError
from podium_registry.domain.digests import of_bytes
from support.empty_database import REGISTRY
from support.full import full
from support.postgres import Postgres
from support.registry import manifest_of
from support.registry_service import MIB, Calls, RegistryService, chunk

COLLECTED = "podium_registry_gc_deleted_blobs_total"


@pytest.fixture(params=[full("sqlite"), "postgresql"])
async def replicas(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[list[RegistryService]]:
    """One registry on SQLite, or two on PostgreSQL and one store; what is unnamed goes at once."""
    settings: dict[str, object] = {
        "store_url": (tmp_path / "store").as_uri(),
        "gc_grace_seconds": 0,
        "gc_interval_seconds": 0,
    }
    names = "a"
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        settings["database_url"] = await REGISTRY.postgresql(server)
        names = "ab"
    made = [RegistryService(tmp_path / name, **settings) for name in names]
    await asyncio.gather(*(each.start() for each in made))
    yield made
    for each in made:
        each.kill()


@pytest.fixture
async def each(replicas: list[RegistryService]) -> AsyncIterator[list[Calls]]:
    """Calls to every replica."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(replica.calls()) for replica in replicas]


def objects(tmp_path: Path) -> set[str]:
    """What the store holds."""
    return {path.name for path in (tmp_path / "store").rglob("*") if path.is_file()}


def names(*blobs: bytes) -> set[str]:
    """The store's names of blobs."""
    return {of_bytes(blob).removeprefix("sha256:") for blob in blobs}


async def test_what_nothing_names_is_collected_and_nothing_else(
    each: list[Calls], tmp_path: Path
) -> None:
    shared, only, orphan = b"shared", b"only the old one", b"orphan" * 100
    for number, files in enumerate(({"a": shared, "b": only}, {"a": shared})):
        for data in files.values():
            await each[0].put(data)
        await each[0].create(manifest_of("m", number, files))
    await each[0].put(orphan)
    found = await each[-1].collect()
    assert (found.deleted_blobs, found.freed_bytes) == (1, len(orphan))
    assert objects(tmp_path) == names(shared, only)

    await each[0].delete("m", 0)
    found = await each[-1].collect()
    assert (found.deleted_blobs, found.freed_bytes) == (1, len(only))
    assert objects(tmp_path) == names(shared)
    assert await each[0].found(of_bytes(only), of_bytes(shared)) == [of_bytes(shared)]
    with pytest.raises(NotFoundError):
        await each[0].download(of_bytes(only))
    # What was collected can come again.
    await each[-1].put(only)
    assert await each[0].download(of_bytes(only)) == only


async def test_a_leased_version_keeps_its_blobs(each: list[Calls], tmp_path: Path) -> None:
    for number in range(3):
        await each[0].publish("m", number, b"version %d" % number)
    lease = await each[0].lease("m", 0)
    with pytest.raises(FailedPreconditionError) as caught:
        await each[-1].delete("m", 0)
    assert caught.value.reason == "VERSION_IN_USE"
    assert await each[-1].retain(model="m", keep_last=1) == [1]
    await each[-1].collect()
    assert objects(tmp_path) == names(b"version 0", b"version 2")
    assert await each[-1].download(of_bytes(b"version 0")) == b"version 0"

    await each[-1].release(lease)
    assert await each[-1].retain(model="m", keep_last=1) == [0]
    await each[-1].collect()
    assert objects(tmp_path) == names(b"version 2")


async def test_a_lease_that_was_not_renewed_keeps_nothing(each: list[Calls]) -> None:
    for number in range(2):
        await each[0].publish("m", number, b"version %d" % number)
    await each[0].lease("m", 0, seconds=3)
    assert await each[-1].retain(model="m", keep_last=1) == []
    async with asyncio.timeout(60):
        while await each[-1].retain(model="m", keep_last=1) != [0]:
            await asyncio.sleep(0.05)
    assert await each[-1].numbers("m") == [1]
    assert (await each[-1].collect()).deleted_blobs == 1


async def test_an_unfinished_upload_is_no_garbage(each: list[Calls]) -> None:
    data = os.urandom(2 * MIB)
    upload_id = (await each[0].start_upload(data)).upload_id
    await each[0].send([chunk(data[:MIB], 0, upload_id)])
    for calls in each:
        await calls.collect()
    assert await each[0].persisted(upload_id) == MIB
    assert (await each[0].send([chunk(data[MIB:], MIB, upload_id)])).complete


async def test_a_version_and_a_collection_at_once_leave_no_version_without_blobs(
    each: list[Calls],
) -> None:
    async def collect(after: float) -> object:
        await asyncio.sleep(after)
        return await each[-1].collect()

    number, won = 0, False
    while number < 12 or not won:
        files = {name: os.urandom(64) for name in "abc"}
        for data in files.values():
            await each[0].put(data)
        # On a busy machine the collection can win every time: then it begins later and later.
        head_start = 0.001 * 2 ** (number - 12) if number >= 12 else 0.0
        created, collected = await asyncio.gather(
            each[0].create(manifest_of("m", number, files)),
            collect(after=head_start),
            return_exceptions=True,
        )
        assert not isinstance(collected, BaseException), collected
        if isinstance(created, BaseException):
            assert isinstance(created, PodiumError)
            assert created.reason == "MISSING_BLOB"
            assert number not in await each[-1].numbers("m")
        else:
            won = True
            for data in files.values():
                assert await each[-1].download(of_bytes(data)) == data
        number += 1


async def test_uploads_and_collections_at_once_leave_no_promise_without_its_bytes(
    each: list[Calls],
) -> None:
    blobs = [os.urandom(64 + index) for index in range(6)]
    digests = [of_bytes(data) for data in blobs]
    over = asyncio.Event()

    async def send(calls: Calls, data: bytes) -> None:
        for _ in range(8):
            await calls.put(data)

    async def collect(calls: Calls) -> None:
        while not over.is_set():
            await calls.collect()

    collecting = [asyncio.create_task(collect(calls)) for calls in each]
    try:
        await asyncio.gather(
            *(send(each[index % len(each)], data) for index, data in enumerate(blobs))
        )
    finally:
        over.set()
        await asyncio.gather(*collecting)
    promised = await each[0].found(*digests)
    for data, digest in zip(blobs, digests, strict=True):
        if digest in promised:
            assert await each[-1].download(digest) == data
        else:
            await each[-1].put(data)
            assert await each[0].download(digest) == data


async def test_a_blob_that_was_found_is_kept_for_the_grace_period(tmp_path: Path) -> None:
    service = RegistryService(tmp_path, gc_grace_seconds=3600)
    await service.start()
    try:
        async with service.calls() as calls:
            await calls.put(b"about to be named")
            assert (await calls.collect()).deleted_blobs == 0
            await service.restart()
        async with service.calls() as calls:
            assert (await calls.collect()).deleted_blobs == 0
            await calls.create(manifest_of("m", 0, {"a": b"about to be named"}))
    finally:
        service.kill()


async def test_a_registry_that_is_killed_while_it_collects_goes_on_after(tmp_path: Path) -> None:
    service = RegistryService(tmp_path, gc_grace_seconds=0, gc_interval_seconds=0)
    kept = {f"f{index}": b"kept %d" % index for index in range(5)}
    garbage: list[bytes] = []
    await service.start()
    try:
        async with service.calls() as calls:
            for data in kept.values():
                await calls.put(data)
            await calls.create(manifest_of("m", 0, kept))
            halfway = False
            while not halfway:
                # A busy machine can be done before this sees it begin: then with twice as much.
                garbage = [b"garbage %d" % index for index in range(2 * len(garbage) or 60)]
                for data in garbage:
                    await calls.put(data)
                before = await service.metric(COLLECTED)
                collecting = asyncio.create_task(calls.collect())
                while await service.metric(COLLECTED) < before + 5:
                    await asyncio.sleep(0.001)
                halfway = not collecting.done()
            await service.restart()
            collecting.cancel()
            await asyncio.gather(collecting, return_exceptions=True)
        async with service.calls() as calls:
            # Whatever it still promises it has.
            for digest in await calls.found(*(of_bytes(data) for data in garbage)):
                assert of_bytes(await calls.download(digest)) == digest
            await calls.collect()
            assert await calls.found(*(of_bytes(data) for data in garbage)) == []
            for data in kept.values():
                assert await calls.download(of_bytes(data)) == data
        left = {path.name for path in (service.data_dir / "blobs").rglob("*") if path.is_file()}
        assert left == names(*kept.values())
    finally:
        service.kill()
