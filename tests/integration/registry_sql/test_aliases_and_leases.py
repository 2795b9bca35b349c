"""What holds a version: aliases, leases, retention, and the history of it all."""

from __future__ import annotations

import asyncio

import pytest
from podium.core.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
)
from podium.registry.v1 import registry_service_pb2 as pb
from support.registry import MakeRegistry, Registry


async def publish(registry: Registry, count: int, model: str = "job") -> None:
    for number in range(count):
        await registry.publish(model, number, reward=float(number % 4))


async def test_compare_and_set_moves_an_alias_once(registry: Registry) -> None:
    await publish(registry, 10)
    for expected in (-1, 0):
        if expected == 0:
            await registry.versions.set_alias("job", "best", 0, None)
        results = await asyncio.gather(
            *(registry.versions.set_alias("job", "best", n, expected) for n in range(1, 9)),
            return_exceptions=True,
        )
        won = [result for result in results if isinstance(result, pb.Version)]
        lost = [result for result in results if isinstance(result, AbortedError)]
        assert (len(won), len(lost)) == (1, 7), results
        assert {error.reason for error in lost} == {"ALIAS_MOVED"}
        best = await registry.versions.get_by_alias("job", "best")
        assert best.manifest.version == won[0].manifest.version


async def test_an_alias_set_by_many_at_once_points_at_one_of_them(registry: Registry) -> None:
    await publish(registry, 8)
    await asyncio.gather(*(registry.versions.set_alias("job", "x", n, None) for n in range(8)))
    assert (await registry.versions.get_by_alias("job", "x")).manifest.version in range(8)


async def test_aliases_refuse_what_they_must(registry: Registry) -> None:
    await publish(registry, 1)
    with pytest.raises(NotFoundError):
        await registry.versions.set_alias("job", "best", 5, None)
    for call in (
        registry.versions.set_alias("job", "latest", 0, None),
        registry.versions.delete_alias("job", "latest"),
    ):
        with pytest.raises(InvalidArgumentError):
            await call
    await registry.versions.set_alias("job", "best", 0, -1)
    await registry.versions.delete_alias("job", "best")
    await registry.versions.delete_alias("job", "best")
    with pytest.raises(NotFoundError):
        await registry.versions.get_by_alias("job", "best")


async def test_t23_what_an_alias_or_a_lease_names_is_not_deleted(registry: Registry) -> None:
    await publish(registry, 4)
    await registry.versions.set_alias("job", "best", 1, None)
    lease, _ = await registry.versions.acquire_lease("job", 0, "pool", 60)
    for number in (0, 1, 3):
        with pytest.raises(FailedPreconditionError) as caught:
            await registry.versions.delete("job", number)
        assert caught.value.reason == "VERSION_IN_USE"
    await registry.versions.delete("job", 2)
    await registry.versions.delete("job", 2)
    await registry.versions.release_lease(lease)
    await registry.versions.release_lease(lease)
    await registry.versions.delete("job", 0)
    with pytest.raises(NotFoundError):
        await registry.versions.acquire_lease("job", 0, "pool", 60)


async def test_a_holder_has_one_lease_and_renews_it(registry: Registry) -> None:
    await publish(registry, 2)
    leases = await asyncio.gather(
        *(registry.versions.acquire_lease("job", 0, "pool", 60) for _ in range(8))
    )
    assert len({lease for lease, _ in leases}) == 1
    _, early = await registry.versions.acquire_lease("job", 0, "pool", 1)
    _, late = await registry.versions.acquire_lease("job", 0, "pool", 60)
    assert late > early
    other, _ = await registry.versions.acquire_lease("job", 0, "other", 60)
    assert other != leases[0][0]


async def test_a_lease_that_ended_holds_nothing(registry: Registry) -> None:
    await publish(registry, 2)
    await registry.versions.acquire_lease("job", 0, "pool", 0.05)
    await asyncio.sleep(0.1)
    await registry.versions.delete("job", 0)


async def test_a_lease_and_a_delete_never_both_win(registry: Registry) -> None:
    await publish(registry, 13)
    for number in range(12):
        leased, deleted = await asyncio.gather(
            registry.versions.acquire_lease("job", number, "pool", 60),
            registry.versions.delete("job", number),
            return_exceptions=True,
        )
        if isinstance(leased, tuple):
            assert isinstance(deleted, FailedPreconditionError)
            await registry.versions.get("job", number)
        else:
            assert isinstance(leased, NotFoundError)
            assert deleted is None


@pytest.mark.parametrize(("lower", "best"), [(False, [3, 7]), (True, [4, 8])])
async def test_retention_keeps_the_newest_the_best_and_what_is_in_use(
    registry: Registry, lower: bool, best: list[int]
) -> None:
    await publish(registry, 12)
    await registry.versions.set_alias("job", "mine", 1, None)
    await registry.versions.acquire_lease("job", 2, "pool", 60)
    for number in (3, 7):
        await registry.versions.record_evaluation("job", number, {"success": 0.9})
    for number in (4, 8):
        await registry.versions.record_evaluation("job", number, {"success": 0.1})
    await registry.versions.record_evaluation("job", 5, {"success": 0.5})
    deleted = await registry.versions.retain("job", 2, 2, "success", lower)
    kept = sorted({1, 2, 10, 11, *best})
    assert deleted == [number for number in range(12) if number not in kept]
    page, _ = await registry.versions.page("job", 100, "")
    assert sorted(version.manifest.version for version in page) == kept
    assert await registry.versions.retain("job", 2, 2, "success", lower) == []


async def test_retention_ranks_by_the_manifest_where_nothing_was_evaluated(
    registry: Registry,
) -> None:
    await publish(registry, 8)
    await registry.versions.record_evaluation("job", 0, {"reward": 9.0})
    await registry.versions.retain("job", 1, 2, "reward", False)
    page, _ = await registry.versions.page("job", 100, "")
    assert [version.manifest.version for version in page] == [7, 0]


async def test_retention_by_best_needs_a_metric(registry: Registry) -> None:
    with pytest.raises(InvalidArgumentError):
        await registry.versions.retain("job", 1, 1, "", False)


async def test_a_watch_resumes_where_it_stopped(registry: Registry) -> None:
    await publish(registry, 2)
    await publish(registry, 1, "other")
    await registry.versions.set_alias("job", "best", 1, None)
    await registry.versions.delete("job", 0)
    await registry.versions.delete_alias("job", "best")
    stream = registry.history.watch("job", 0)
    seen = [await anext(stream) for _ in range(5)]
    assert [(c.change, c.version, c.alias) for c in seen] == [
        (pb.VERSION_CHANGE_CREATED, 0, ""),
        (pb.VERSION_CHANGE_CREATED, 1, ""),
        (pb.VERSION_CHANGE_ALIAS_SET, 1, "best"),
        (pb.VERSION_CHANGE_DELETED, 0, ""),
        (pb.VERSION_CHANGE_ALIAS_DELETED, 1, "best"),
    ]
    again = registry.history.watch("job", seen[2].sequence)
    assert [await anext(again) for _ in range(2)] == seen[3:]
    everything = registry.history.watch("", 0)
    sequences = [(await anext(everything)).sequence for _ in range(6)]
    assert sequences == sorted(set(sequences))
    with pytest.raises(OutOfRangeError):
        await anext(registry.history.watch("job", sequences[-1] + 1))


async def test_a_watch_misses_nothing_that_replicas_write_at_once(
    replica: MakeRegistry,
) -> None:
    replicas = [replica() for _ in range(3)]
    stream = replicas[0].history.watch("", 0)

    async def watch() -> list[int]:
        return [(await anext(stream)).sequence for _ in range(45)]

    watching = asyncio.create_task(watch())
    await asyncio.gather(
        *(
            each.publish(f"job-{index}-{number % 5}", number // 5)
            for index, each in enumerate(replicas)
            for number in range(15)
        )
    )
    seen = await asyncio.wait_for(watching, 90)
    # Ascending, each once: a number that committed late was not passed over.
    assert seen == sorted(set(seen))
    assert len(seen) == 45
