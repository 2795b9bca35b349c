"""A registry's domain over a real database and a real folder, in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from podium.core.errors import NotFoundError
from podium.kit.sql import Database
from podium.registry.v1 import registry_service_pb2 as pb
from podium_registry.adapters.blobs import Blobs
from podium_registry.adapters.garbage_collector import GarbageCollector
from podium_registry.adapters.history import ChangeLog
from podium_registry.adapters.object_store import ObjectBlobStore
from podium_registry.adapters.staging import Staging
from podium_registry.adapters.states import States
from podium_registry.adapters.versions import Versions
from podium_registry.domain.digests import of_bytes
from support.empty_database import REGISTRY
from support.postgres import Postgres

HOUR = 3600.0


@dataclass
class Registry:
    """One replica."""

    database: Database
    store: ObjectBlobStore
    staging: Staging
    blobs: Blobs
    collector: GarbageCollector
    history: ChangeLog
    versions: Versions
    states: States

    async def put(self, data: bytes) -> str:
        """Stores a blob as an upload would."""
        digest = of_bytes(data)
        while (upload := await self.blobs.start(digest, len(data))) is not None:
            # Another may have sent it while this one waited; a client too asks then anew.
            with suppress(NotFoundError):
                async with upload.writer:
                    for offset in range(0, len(data), 1 << 20):
                        await self.blobs.append(upload, offset, data[offset : offset + (1 << 20)])
                    await self.blobs.complete(upload)
                    break
        return digest

    async def read(self, digest: str, offset: int = 0) -> bytes:
        """A blob's bytes from an offset."""
        return b"".join([data async for _, data, _ in self.blobs.read(digest, offset)])

    async def publish(
        self,
        model: str,
        version: int,
        *,
        data: bytes = b"weights",
        request_id: str = "",
        parents: tuple[tuple[str, int], ...] = (),
        **metrics: float,
    ) -> pb.Version:
        """Publishes a version with one file."""
        manifest = manifest_of(model, version, {"adapter/a.bin": data}, **metrics)
        for parent, number in parents:
            manifest.parents.add(model=parent, version=number)
        await self.put(data)
        return await self.versions.create(manifest, request_id)


def manifest_of(model: str, version: int, files: dict[str, bytes], **metrics: float) -> pb.Manifest:
    """A manifest of files."""
    manifest = pb.Manifest(
        model=model, version=version, kind=pb.VERSION_KIND_ADAPTER, metrics=metrics
    )
    for path, data in files.items():
        manifest.files.add(path=path, size=len(data), digest=of_bytes(data))
    return manifest


MakeRegistry = Callable[..., Registry]


@pytest.fixture(params=["sqlite", "postgresql"])
async def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A migrated database of each kind."""
    if request.param == "sqlite":
        return await REGISTRY.sqlite(tmp_path)
    server: Postgres = request.getfixturevalue("postgres")
    return await REGISTRY.postgresql(server)


@pytest.fixture
async def replica(database_url: str, tmp_path: Path) -> AsyncIterator[MakeRegistry]:
    """Makes replicas that share the database and the store."""
    made: list[Registry] = []

    def make(
        grace_seconds: float = HOUR, upload_ttl_seconds: float = HOUR, store_url: str = ""
    ) -> Registry:
        database = Database(database_url)
        store = ObjectBlobStore(store_url or (tmp_path / "blobs").as_uri())
        staging = Staging(tmp_path / f"uploads-{len(made)}")
        history = ChangeLog(database, poll_seconds=0.05)
        blobs = Blobs(database, store, staging, max_bytes=1 << 40)
        made.append(
            Registry(
                database,
                store,
                staging,
                blobs,
                GarbageCollector(
                    database,
                    store,
                    staging,
                    grace_seconds=grace_seconds,
                    upload_ttl_seconds=upload_ttl_seconds,
                ),
                history,
                Versions(database, history, blobs),
                States(database, history, blobs),
            )
        )
        return made[-1]

    yield make
    for each in made:
        await each.database.close()


@pytest.fixture
def registry(replica: MakeRegistry) -> Registry:
    """One replica whose garbage keeps an hour."""
    return replica()
