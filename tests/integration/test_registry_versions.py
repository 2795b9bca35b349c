"""Versions and aliases over real gRPC, on SQLite and on PostgreSQL with two replicas."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from podium.core.errors import (
    AbortedError,
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from podium.kit.rpc import rpc_errors
from podium.registry.v1 import registry_service_pb2 as pb
from podium_registry.domain.digests import of_bytes
from support.postgres import Postgres
from support.registry import manifest_of
from support.registry_service import Calls, RegistryService


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def replicas(request: pytest.FixtureRequest) -> Iterator[list[RegistryService]]:
    """One registry on SQLite, or two on one PostgreSQL and one store."""
    folder = Path(tempfile.mkdtemp(prefix="podium-registry-"))
    shared: dict[str, object] = {}
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        shared = {"database_url": server.create_database(), "store_url": (folder / "s").as_uri()}
    made = [RegistryService(folder / name, **shared) for name in ("a", "b")[: 1 + bool(shared)]]

    async def start() -> None:
        await asyncio.gather(*(each.start() for each in made))

    try:
        asyncio.run(start())
        yield made
    finally:
        for each in made:
            each.kill()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def each(replicas: list[RegistryService]) -> AsyncIterator[list[Calls]]:
    """Calls to every replica."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(replica.calls()) for replica in replicas]


@pytest.fixture
def calls(each: list[Calls]) -> Calls:
    """Calls to the first."""
    return each[0]


async def test_of_fifty_who_create_one_version_one_does(each: list[Calls]) -> None:
    bodies = [b"body %d" % index for index in range(50)]
    for data in bodies:
        await each[0].put(data)
    outcomes = await asyncio.gather(
        *(
            each[index % len(each)].create(manifest_of("fifty", 7, {"a": data}), f"fifty/{index}")
            for index, data in enumerate(bodies)
        ),
        return_exceptions=True,
    )
    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, pb.Version)]
    losers = [outcome for outcome in outcomes if isinstance(outcome, AlreadyExistsError)]
    assert [loser.reason for loser in losers] == ["VERSION_EXISTS"] * 49
    assert await each[-1].get("fifty", 7) == winner
    assert await each[-1].get("fifty", "latest") == winner


async def test_one_request_said_fifty_times_is_one_version(each: list[Calls]) -> None:
    await each[0].put(b"weights")
    manifest = manifest_of("repeated", 0, {"a": b"weights"}, reward=0.5)
    outcomes = await asyncio.gather(
        *(each[index % len(each)].create(manifest, "repeated/0") for index in range(50))
    )
    assert all(outcome == outcomes[0] for outcome in outcomes)
    assert await each[-1].numbers("repeated") == [0]

    other = manifest_of("repeated", 1, {"a": b"weights"}, reward=0.25)
    with pytest.raises(AlreadyExistsError) as caught:
        await each[-1].create(other, "repeated/0")
    assert caught.value.reason == "REQUEST_ID_REUSED"
    assert await each[0].numbers("repeated") == [0]


async def test_a_request_said_again_does_not_bring_back_what_was_deleted(calls: Calls) -> None:
    await calls.publish("gone", 1)
    manifest = manifest_of("gone", 0, {"a": b"weights"})
    await calls.create(manifest, "gone/0")
    await calls.delete("gone", 0)
    with pytest.raises(NotFoundError):
        await calls.create(manifest, "gone/0")
    assert await calls.numbers("gone") == [1]


async def test_of_those_who_move_an_alias_from_one_place_one_does(each: list[Calls]) -> None:
    for number in range(20):
        await each[0].publish("raced", number)
    # First from nowhere, where there is no row to lock.
    at = -1
    for _ in range(5):
        outcomes = await asyncio.gather(
            *(
                each[number % len(each)].set_alias("raced", "best", number, expected=at)
                for number in random.sample([n for n in range(20) if n != at], 12)
            ),
            return_exceptions=True,
        )
        (winner,) = [outcome for outcome in outcomes if isinstance(outcome, pb.Version)]
        losers = [outcome for outcome in outcomes if isinstance(outcome, AbortedError)]
        at = winner.manifest.version
        assert {(loser.reason, loser.metadata["current"]) for loser in losers} == {
            ("ALIAS_MOVED", str(at))
        }
        assert len(losers) == 11
        assert (await each[-1].get("raced", "best")).manifest.version == at
    with pytest.raises(AbortedError):
        await each[-1].set_alias("raced", "best", 3, expected=-1)


async def test_a_version_is_never_seen_without_all_its_blobs(each: list[Calls]) -> None:
    files = {f"adapter/{index}.bin": b"atomic %d" % index for index in range(12)}
    digests = [of_bytes(data) for data in files.values()]
    manifest = manifest_of("atomic", 0, files)
    published = asyncio.Event()
    looks = 0

    async def look(calls: Calls) -> None:
        nonlocal looks
        while True:
            over = published.is_set()
            try:
                version = await calls.get("atomic", "latest")
            except NotFoundError:
                assert not over
                looks += 1
                await asyncio.sleep(0)
                continue
            assert version.manifest == manifest
            assert len(await calls.found(*digests)) == len(digests)
            for data, digest in zip(files.values(), digests, strict=True):
                assert await calls.download(digest) == data
            return

    async def publish() -> None:
        for stored, data in enumerate(files.values()):
            with pytest.raises(FailedPreconditionError) as caught:
                await each[0].create(manifest, "atomic/0")
            assert caught.value.reason == "MISSING_BLOB"
            assert caught.value.metadata["count"] == str(len(files) - stored)
            await each[0].put(data)
        await each[0].create(manifest, "atomic/0")
        published.set()

    await asyncio.gather(publish(), *(look(calls) for calls in each))
    assert looks


async def test_retention_keeps_the_last_the_best_the_named_and_the_leased(
    each: list[Calls],
) -> None:
    for number in range(10):
        await each[0].publish("kept", number, b"kept %d" % number, reward=[0, 9, 8][number % 3])
    # An evaluation outranks the number in the manifest.
    with rpc_errors("registry"):
        await each[-1].stub.RecordEvaluation(
            pb.RecordEvaluationRequest(model="kept", version=6, metrics={"reward": 10.0})
        )
    await each[-1].set_alias("kept", "mine", 3)
    lease = await each[-1].lease("kept", 5)
    rule = {"model": "kept", "keep_last": 2, "keep_best": 2, "metric": "reward"}
    assert await each[0].retain(**rule) == [0, 1, 2, 4]
    assert await each[-1].numbers("kept") == [3, 5, 6, 7, 8, 9]
    await each[0].release(lease)
    assert await each[-1].retain(**rule) == [5]
    assert await each[-1].retain(**rule) == []
    for wrong, field in (
        ({"model": "kept"}, "keep_last"),
        ({"model": "kept", "keep_last": 1, "keep_best": 1}, "metric"),
    ):
        with pytest.raises(InvalidArgumentError, match=field):
            await each[0].retain(**wrong)
    assert await each[0].numbers("kept") == [3, 6, 7, 8, 9]


async def test_pages_hold_everything_once_while_versions_come_and_go(each: list[Calls]) -> None:
    for number in range(25):
        await each[0].publish("paged", number)

    async def page(index: int, token: str, model: str = "paged") -> pb.ListVersionsResponse:
        with rpc_errors("registry"):
            return await each[index % len(each)].stub.ListVersions(
                pb.ListVersionsRequest(model=model, page_size=4, page_token=token)
            )

    seen: list[int] = []
    token = ""
    for index in range(100):
        found = await page(index, token)
        assert len(found.versions) <= 4
        seen += [version.manifest.version for version in found.versions]
        token = found.next_page_token
        if not token:
            break
        # Newer ones do not shift the pages, and deleted ones leave no gap.
        await each[0].publish("paged", 25 + index)
        await each[0].delete("paged", 24 - index)
    assert seen == sorted(set(seen), reverse=True)
    assert set(seen) >= set(range(24 - index))

    first = (await page(0, "")).next_page_token
    for wrong in ("rubbish", first[:-3], first + "AAAA", "W10"):
        with pytest.raises(InvalidArgumentError, match="page_token"):
            await page(0, wrong)
    with pytest.raises(InvalidArgumentError, match="page_token"):
        await page(0, first, "another")


async def test_models_are_listed_by_name(each: list[Calls]) -> None:
    for name in ("zz-b", "zz-a", "zz-c"):
        for number in (3, 4):
            await each[0].publish(name, number)
    names: list[pb.Model] = []
    token = ""
    while True:
        with rpc_errors("registry"):
            found = await each[-1].stub.ListModels(
                pb.ListModelsRequest(page_size=2, page_token=token)
            )
        names += found.models
        token = found.next_page_token
        if not token:
            break
    assert [model for model in names if model.name.startswith("zz-")] == [
        pb.Model(name=name, latest_version=4, version_count=2) for name in ("zz-a", "zz-b", "zz-c")
    ]


PATHS = [
    "../x",
    "a/../../x",
    "a/..",
    "/etc/passwd",
    "a//b",
    "./a",
    "a/",
    "",
    "a\\b",
    ".hidden",
    "a/\x00b",
    "a\n",
    "x" * 513,
]


@pytest.mark.parametrize("path", PATHS, ids=ascii)
async def test_a_path_that_could_leave_its_folder_is_refused(calls: Calls, path: str) -> None:
    await calls.put(b"weights")
    with pytest.raises(InvalidArgumentError, match=r"files\[0\]\.path"):
        await calls.create(manifest_of("escaping", 0, {path: b"weights"}))
    with pytest.raises(NotFoundError):
        await calls.get("escaping", 0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
async def test_numbers_that_are_none_are_refused(calls: Calls, value: float) -> None:
    model = {"nan": "nan", "inf": "over", "-inf": "under"}[str(value)]
    await calls.publish(model, 0)
    with pytest.raises(InvalidArgumentError, match="reward"):
        await calls.publish(model, 1, reward=value)
    with pytest.raises(InvalidArgumentError, match="reward"), rpc_errors("registry"):
        await calls.stub.RecordEvaluation(
            pb.RecordEvaluationRequest(model=model, version=0, metrics={"reward": value})
        )
    assert await calls.numbers(model) == [0]


async def test_wrong_requests_name_what_is_wrong(calls: Calls) -> None:
    await calls.publish("wrong", 0)
    for version in (1, "best", "latest "):
        with pytest.raises(NotFoundError, match="wrong"):
            await calls.get("wrong", version)
    with pytest.raises(NotFoundError):
        await calls.get("nobody", "latest")
    assert await calls.numbers("nobody") == []
    with pytest.raises(InvalidArgumentError, match="selector"), rpc_errors("registry"):
        await calls.stub.GetVersion(pb.GetVersionRequest(model="wrong"))
    for alias in ("latest", "Best", "-x", "", "a" * 65):
        with pytest.raises(InvalidArgumentError, match="alias"):
            await calls.set_alias("wrong", alias, 0)
    with pytest.raises(NotFoundError):
        await calls.set_alias("wrong", "best", 9)
    for seconds in (0, 86401):
        with pytest.raises(InvalidArgumentError, match="ttl"):
            await calls.lease("wrong", 0, seconds)
    with pytest.raises(NotFoundError):
        await calls.lease("wrong", 9)
    for digest in ("x", "sha256:" + "g" * 64, "../x"):
        with pytest.raises(InvalidArgumentError, match=r"digests\[1\]"):
            await calls.found(of_bytes(b"weights"), digest)

    orphan = manifest_of("wrong", 2, {"a": b"weights"})
    orphan.parents.add(model="wrong", version=77)
    with pytest.raises(NotFoundError, match="77"):
        await calls.create(orphan)
    for change, field in (
        ({"model": "Upper"}, "model"),
        ({"version": -1}, "version"),
        ({"kind": pb.VERSION_KIND_UNSPECIFIED}, "kind"),
    ):
        manifest = manifest_of("wrong", 3, {"a": b"weights"})
        for name, value in change.items():
            setattr(manifest, name, value)
        with pytest.raises(InvalidArgumentError, match=f"manifest.{field}"):
            await calls.create(manifest)
    clash = manifest_of("wrong", 3, {"a": b"weights", "a/b": b"weights"})
    with pytest.raises(InvalidArgumentError, match="folder"):
        await calls.create(clash)
    assert await calls.numbers("wrong") == [0]
