"""Versions and their lineage: on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import math

import pytest
from podium.core.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from podium_registry.domain.digests import of_bytes
from support.registry import MakeRegistry, Registry, manifest_of


async def test_a_version_appears_whole_and_moves_latest(registry: Registry) -> None:
    made = await registry.publish("job", 0, data=b"abc", reward=0.5)
    assert made.total_bytes == 3
    assert list(made.aliases) == ["latest"]
    assert made.manifest.metrics["reward"] == 0.5
    assert made.manifest_digest == of_bytes(made.manifest.SerializeToString(deterministic=True))
    await registry.publish("job", 2)
    await registry.publish("job", 1)
    assert (await registry.versions.get_by_alias("job", "latest")).manifest.version == 2
    assert not (await registry.versions.get("job", 0)).aliases


async def test_the_digest_does_not_depend_on_the_order_of_map_entries(
    registry: Registry,
) -> None:
    digests = set()
    for model, names in (("a", ("x", "y", "z")), ("b", ("z", "y", "x"))):
        await registry.put(b"abc")
        manifest = manifest_of(model, 0, {"f": b"abc"}, **dict.fromkeys(names, 1.0))
        manifest.labels.update(dict.fromkeys(names, "1"))
        made = await registry.versions.create(manifest, "")
        body = made.manifest
        body.model = "same"
        digests.add(of_bytes(body.SerializeToString(deterministic=True)))
        again = manifest_of(model, 0, {"f": b"abc"}, **dict.fromkeys(reversed(names), 1.0))
        again.labels.update(dict.fromkeys(reversed(names), "1"))
        assert of_bytes(again.SerializeToString(deterministic=True)) == made.manifest_digest
    assert len(digests) == 1


async def test_a_request_id_publishes_once(registry: Registry) -> None:
    await registry.put(b"weights")
    manifest = manifest_of("job", 0, {"a": b"weights"})
    results = await asyncio.gather(
        *(registry.versions.create(manifest, "job/0") for _ in range(50))
    )
    assert len({result.SerializeToString(deterministic=True) for result in results}) == 1
    assert len((await registry.versions.page("job", 100, ""))[0]) == 1


async def test_a_request_id_publishes_once_between_replicas(replica: MakeRegistry) -> None:
    replicas = [replica() for _ in range(4)]
    await replicas[0].put(b"weights")
    manifest = manifest_of("job", 0, {"a": b"weights"})
    results = await asyncio.gather(
        *(replicas[index % 4].versions.create(manifest, "job/0") for index in range(48))
    )
    assert len({result.manifest_digest for result in results}) == 1
    stream = replicas[1].history.watch("job", 0)
    assert (await anext(stream)).version == 0
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(stream), 0.3)


async def test_a_request_id_holds_its_body(registry: Registry) -> None:
    await registry.publish("job", 0, request_id="r")
    with pytest.raises(AlreadyExistsError) as caught:
        await registry.publish("job", 1, request_id="r")
    assert caught.value.reason == "REQUEST_ID_REUSED"
    with pytest.raises(NotFoundError):
        await registry.versions.get("job", 1)


async def test_a_version_number_is_used_once(registry: Registry) -> None:
    await registry.publish("job", 0, request_id="first")
    with pytest.raises(AlreadyExistsError) as caught:
        await registry.publish("job", 0, request_id="second")
    assert caught.value.reason == "VERSION_EXISTS"


async def test_concurrent_versions_of_a_model_leave_latest_at_the_newest(
    registry: Registry,
) -> None:
    await asyncio.gather(*(registry.publish("job", number) for number in range(12)))
    newest = await registry.versions.get_by_alias("job", "latest")
    assert newest.manifest.version == 11


async def test_overlapping_sets_of_blobs_do_not_lock_each_other_out(registry: Registry) -> None:
    blobs = {f"f{index}": b"%d" % index for index in range(40)}
    for data in blobs.values():
        await registry.put(data)
    digests = [of_bytes(data) for data in blobs.values()]
    names = list(blobs)

    async def create(index: int) -> None:
        chosen = names[index:] + names[:index]
        await registry.versions.create(
            manifest_of(f"job-{index}", 0, {name: blobs[name] for name in chosen}), ""
        )
        assert await registry.blobs.find(digests[index:] + digests[:index]) == sorted(digests)

    await asyncio.gather(*(create(index) for index in range(20)))


async def test_a_missing_blob_publishes_nothing(registry: Registry) -> None:
    await registry.put(b"here")
    manifest = manifest_of("job", 0, {"a": b"here", "b": b"elsewhere"})
    with pytest.raises(FailedPreconditionError) as caught:
        await registry.versions.create(manifest, "r")
    assert caught.value.reason == "MISSING_BLOB"
    assert caught.value.metadata["digest"] == of_bytes(b"elsewhere")
    with pytest.raises(NotFoundError):
        await registry.versions.get("job", 0)
    # The failed request leaves its id free.
    await registry.put(b"elsewhere")
    assert (await registry.versions.create(manifest, "r")).total_bytes == 13


async def test_a_manifest_that_lies_about_a_size_is_refused(registry: Registry) -> None:
    await registry.put(b"abc")
    manifest = manifest_of("job", 0, {"a": b"abc"})
    manifest.files[0].size = 4
    with pytest.raises(InvalidArgumentError) as caught:
        await registry.versions.create(manifest, "")
    assert caught.value.violations[0].field == "manifest.files[0].size"
    assert "got 4; the stored blob has 3 bytes" in caught.value.message


@pytest.mark.parametrize(
    ("paths", "field"),
    [
        (("a", "b", "a"), "manifest.files[2].path"),
        (("a", "a/b"), "manifest.files[0].path"),
        (("a/b/c", "a/b"), "manifest.files[1].path"),
    ],
)
async def test_paths_that_cannot_lie_in_one_folder_are_refused(
    registry: Registry, paths: tuple[str, ...], field: str
) -> None:
    manifest = manifest_of("job", 0, {"x": b"abc"})
    del manifest.files[:]
    for path in paths:
        manifest.files.add(path=path, size=3, digest=await registry.put(b"abc"))
    with pytest.raises(InvalidArgumentError) as caught:
        await registry.versions.create(manifest, "")
    assert [violation.field for violation in caught.value.violations] == [field]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
async def test_numbers_are_finite(registry: Registry, value: float) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await registry.publish("job", 0, reward=value)
    assert caught.value.violations[0].field == "manifest.metrics['reward']"
    await registry.publish("job", 0)
    with pytest.raises(InvalidArgumentError):
        await registry.versions.record_evaluation("job", 0, {"success": value})


async def test_evaluations_add_up_and_overwrite(registry: Registry) -> None:
    await registry.publish("job", 0)
    await asyncio.gather(
        *(registry.versions.record_evaluation("job", 0, {f"m{i}": float(i)}) for i in range(10))
    )
    made = await registry.versions.record_evaluation("job", 0, {"m1": 7.0})
    assert dict(made.evaluation_metrics) == {f"m{i}": float(i) for i in range(10)} | {"m1": 7.0}
    with pytest.raises(NotFoundError):
        await registry.versions.record_evaluation("job", 1, {"m": 1.0})


async def test_lineage_walks_parents_nearest_first(registry: Registry) -> None:
    await registry.publish("base", 0)
    for number in range(4):
        parents = (("job", number - 1),) if number else (("base", 0),)
        await registry.publish("job", number, parents=parents)
    walked = await registry.versions.lineage("job", 3, 100)
    assert [(ref.model, ref.version) for ref in walked] == [
        ("job", 2),
        ("job", 1),
        ("job", 0),
        ("base", 0),
    ]
    assert len(await registry.versions.lineage("job", 3, 2)) == 2
    await registry.versions.delete("job", 1)
    assert [ref.version for ref in await registry.versions.lineage("job", 3, 100)] == [2]
    with pytest.raises(NotFoundError):
        await registry.versions.lineage("job", 9, 100)
    with pytest.raises(NotFoundError):
        await registry.publish("job", 10, parents=(("job", 9),))


async def test_pages_continue_and_are_bound_to_their_arguments(registry: Registry) -> None:
    for model in ("a", "b", "c"):
        for number in range(3):
            await registry.publish(model, number)
    first, token = await registry.versions.page("a", 2, "")
    second, end = await registry.versions.page("a", 2, token)
    assert [v.manifest.version for v in [*first, *second]] == [2, 1, 0]
    assert end == ""
    assert list(first[0].aliases) == ["latest"]
    models, models_token = await registry.versions.models(2, "")
    rest, _ = await registry.versions.models(2, models_token)
    assert [(m.name, m.latest_version, m.version_count) for m in [*models, *rest]] == [
        (name, 2, 3) for name in ("a", "b", "c")
    ]
    for wrong in (token[:-2] + "AA", "!!!", "AAAA", models_token, "é"):
        with pytest.raises(InvalidArgumentError) as caught:
            await registry.versions.page("a", 2, wrong)
        assert caught.value.violations[0].field == "page_token"
    with pytest.raises(InvalidArgumentError):
        await registry.versions.page("b", 2, token)


async def test_everything_is_there_after_a_restart(replica: MakeRegistry) -> None:
    first = replica()
    made = await first.publish("job", 0, request_id="r", reward=1.0)
    await first.database.close()
    second = replica()
    assert await second.versions.get("job", 0) == made
    assert await second.publish("job", 0, request_id="r", reward=1.0) == made
