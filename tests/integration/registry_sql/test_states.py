"""What resumes a version, which comes after what serves it."""

from __future__ import annotations

import pytest
from podium.core.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from podium.core.version_state import has_state
from podium.registry.v1 import registry_service_pb2 as pb
from podium_registry.domain.digests import of_bytes
from support.registry import Registry

MOMENTS, WEIGHTS = "state/optimizer.safetensors", "state/adapter_model.safetensors"


def file_of(path: str, data: bytes) -> pb.File:
    return pb.File(path=path, size=len(data), digest=of_bytes(data))


async def add(
    registry: Registry, version: int, data: bytes = b"moments", path: str = MOMENTS
) -> pb.Version:
    await registry.put(data)
    request = pb.AddStateRequest(model="job", version=version, files=[file_of(path, data)])
    return await registry.states.add(request)


async def test_state_is_added_once_and_stays_with_its_version(registry: Registry) -> None:
    published = await registry.publish("job", 0)
    assert not has_state(published)
    version = await add(registry, 0)
    assert has_state(version)
    assert [file.path for file in version.state_files] == [MOMENTS]
    assert version.manifest == published.manifest
    assert version.manifest_digest == published.manifest_digest
    assert version.total_bytes == len(b"weights") + len(b"moments")
    assert await add(registry, 0) == version
    with pytest.raises(AlreadyExistsError) as caught:
        await add(registry, 0, b"others")
    assert caught.value.reason == "STATE_EXISTS"
    changes = [it async for it in _all(registry)]
    assert [it.change for it in changes][-1] == pb.VERSION_CHANGE_STATE_ADDED
    assert sum(it.change == pb.VERSION_CHANGE_STATE_ADDED for it in changes) == 1


async def _all(registry: Registry):  # type: ignore[no-untyped-def]
    async for change in registry.history.watch("job", 0):
        yield change
        if change.change == pb.VERSION_CHANGE_STATE_ADDED:
            return


async def test_what_weights_and_state_share_is_counted_once(registry: Registry) -> None:
    await registry.publish("job", 0)
    version = await add(registry, 0, b"weights", WEIGHTS)
    assert version.total_bytes == len(b"weights")


async def test_state_that_came_with_the_weights_is_no_other_state(registry: Registry) -> None:
    manifest = pb.Manifest(model="job", version=0, kind=pb.VERSION_KIND_ADAPTER)
    manifest.files.append(file_of(MOMENTS, b"moments"))
    await registry.put(b"moments")
    await registry.versions.create(manifest, "")
    assert not (await add(registry, 0)).state_files
    with pytest.raises(AlreadyExistsError):
        await add(registry, 0, b"others")


async def test_what_is_no_state_is_refused(registry: Registry) -> None:
    await registry.publish("job", 0)
    with pytest.raises(NotFoundError):
        await add(registry, 1)
    for path, says in (
        ("adapter/more.bin", "allowed are paths under state/"),
        ("state", "allowed are paths under state/"),
    ):
        with pytest.raises(InvalidArgumentError, match=says):
            await add(registry, 0, path=path)
    lost = pb.AddStateRequest(model="job", version=0, files=[file_of(MOMENTS, b"nobody's")])
    with pytest.raises(FailedPreconditionError) as caught:
        await registry.states.add(lost)
    assert caught.value.reason == "MISSING_BLOB"
    await registry.put(b"moments")
    cut = file_of(MOMENTS, b"moments")
    cut.size -= 1
    with pytest.raises(InvalidArgumentError, match="the stored blob has 7 bytes"):
        await registry.states.add(pb.AddStateRequest(model="job", version=0, files=[cut]))
    twice = [file_of(MOMENTS, b"moments")] * 2
    with pytest.raises(InvalidArgumentError, match="stands twice"):
        await registry.states.add(pb.AddStateRequest(model="job", version=0, files=twice))
    assert not has_state(await registry.versions.get("job", 0))


async def test_the_newest_version_with_state_is_found_and_stays(registry: Registry) -> None:
    for number in range(7):
        await registry.publish("job", number)
        if number in (0, 2, 4):
            await add(registry, number, b"moments %d" % number)
    found = [(await registry.states.newest("job", n)).manifest.version for n in (0, 1, 3, 4, 6, 99)]
    assert found == [0, 0, 2, 4, 4, 4]
    with pytest.raises(NotFoundError) as caught:
        await registry.states.newest("nobody", 6)
    assert caught.value.reason == "STATE_NOT_STORED"
    # With one version the newest that a job can go on from stays; with more the one before it too.
    assert await registry.versions.retain("job", 2, 0, "", False, [1]) == [0, 3]
    assert await registry.versions.retain("job", 1, 0, "", False) == [1, 2, 5]
    # And what it is of.
    await registry.collector.collect()
    assert await registry.read(of_bytes(b"moments 4")) == b"moments 4"
