"""A version holds its blobs for as long as it is there."""

from __future__ import annotations

import pytest
from podium.core.errors import NotFoundError
from support.registry import MakeRegistry


async def test_what_a_version_names_is_not_collected_until_the_last_one_is_deleted(
    replica: MakeRegistry,
) -> None:
    """Two versions with the same file, where what nothing names goes at once."""
    registry = replica(grace_seconds=0)
    loose = await registry.put(b"named by nothing")
    for model in ("one", "two"):
        await registry.publish(model, 0, data=b"weights")
    held = (await registry.versions.get("one", 0)).manifest.files[0].digest
    assert await registry.collector.collect() == (1, len(b"named by nothing"))
    with pytest.raises(NotFoundError):
        await registry.read(loose)
    for model, left in (("one", 0), ("two", 1)):
        assert await registry.read(held) == b"weights"
        await registry.publish(model, 1, data=b"newer")
        await registry.versions.delete(model, 0)
        assert (await registry.collector.collect())[0] == left
    with pytest.raises(NotFoundError):
        await registry.read(held)
