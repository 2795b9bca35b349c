"""Blobs: uploading, finding, reading, and collecting what nothing names."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

import sqlalchemy as sa
from podium.core.errors import (
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    Violation,
)
from podium.sql import Database
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_registry import metrics
from podium_registry.digests import check_digest
from podium_registry.object_store import BlobStore
from podium_registry.staging import Staging, Upload, one_writer
from podium_registry.tables import blobs, version_blobs

CHUNK_BYTES = 1 << 20


class Blobs:
    """Content-addressed bytes.

    The row of a blob is written in the same transaction in which its object
    is stored, and deleted in the one in which its object is deleted. So the
    row's lock orders an upload against the garbage collector.
    """

    def __init__(
        self,
        database: Database,
        store: BlobStore,
        staging: Staging,
        *,
        max_bytes: int,
        grace_seconds: float,
    ) -> None:
        """`grace_seconds`: how long a blob that nothing names is kept."""
        self._database = database
        self._store = store
        self._staging = staging
        self._max_bytes = max_bytes
        self._grace = grace_seconds

    async def find(self, digests: Sequence[str]) -> list[str]:
        """Those that are stored; each is kept for the grace period from now.

        Raises:
            InvalidArgumentError: a malformed digest.
        """
        for index, digest in enumerate(digests):
            check_digest(digest, f"digests[{index}]")
        async with self._database.write() as connection:
            return sorted(await touch(connection, digests))

    async def start(self, digest: str, size: int) -> Upload | None:
        """The upload to go on with; None when the blob is stored already.

        Raises:
            OutOfRangeError: more than the server takes.
        """
        check_digest(digest, "digest")
        if size > self._max_bytes:
            raise OutOfRangeError(
                f"blob of {size} bytes; this registry takes at most {self._max_bytes}",
                reason="BLOB_TOO_LARGE",
                metadata={"size": str(size), "max": str(self._max_bytes)},
            )
        async with self._database.write() as connection:
            if await touch(connection, [digest]):
                return None
        upload = await asyncio.to_thread(self._staging.start, digest, size)
        metrics.UPLOADS_IN_PROGRESS.set(self._staging.count)
        return upload

    def upload(self, upload_id: str) -> Upload:
        """An unfinished upload. Raises NotFoundError."""
        return self._staging.get(upload_id)

    def lock(self, upload: Upload) -> asyncio.Lock:
        """Makes the caller the upload's one writer. Raises AbortedError."""
        return one_writer(upload)

    async def append(self, upload: Upload, offset: int, data: bytes) -> None:
        """Appends a chunk; see `Upload.append`."""
        if len(data) > CHUNK_BYTES:
            raise InvalidArgumentError(
                violations=[
                    Violation("data", f"got {len(data)} bytes; allowed are at most {CHUNK_BYTES}")
                ]
            )
        await asyncio.to_thread(upload.append, data, offset)
        metrics.BYTES_UPLOADED.inc(len(data))

    async def complete(self, upload: Upload) -> None:
        """Verifies and stores an upload that has all its bytes.

        Raises:
            DataLossError: WRONG_DIGEST.
        """
        await asyncio.to_thread(upload.verify)
        async with self._database.write() as connection:
            if not await touch(connection, [upload.digest]):
                await connection.execute(
                    sa.insert(blobs).values(
                        digest=upload.digest, size=upload.size, touch_time=time.time()
                    )
                )
                await self._store.put(upload.digest, upload.path)
        self._staging.finish(upload)
        metrics.UPLOADS_IN_PROGRESS.set(self._staging.count)

    async def size(self, digest: str) -> int:
        """Bytes of a stored blob. Raises NotFoundError."""
        async with self._database.read() as connection:
            size = await connection.scalar(sa.select(blobs.c.size).where(blobs.c.digest == digest))
        if size is None:
            raise NotFoundError(f"blob {digest} is not stored", reason="BLOB_NOT_FOUND")
        return int(size)

    async def read(self, digest: str, offset: int) -> AsyncIterator[tuple[int, bytes, int]]:
        """(offset, bytes, whole size) from an offset on.

        Raises:
            NotFoundError: no such blob.
            OutOfRangeError: an offset past the end.
            DataLossError: the stored object is shorter or longer than it was.
        """
        size = await self.size(digest)
        if offset > size:
            raise OutOfRangeError(
                f"offset {offset} is past the blob's end at {size}",
                metadata={"offset": str(offset), "size": str(size)},
            )
        stored = await self._store.size(digest)
        if stored != size:
            raise DataLossError(
                f"blob {digest} has {stored} stored bytes, not {size}", reason="BLOB_DAMAGED"
            )
        async for data in self._store.read(digest, offset, size):
            metrics.BYTES_DOWNLOADED.inc(len(data))
            yield offset, data, size
            offset += len(data)

    async def collect(self, upload_ttl_seconds: float) -> tuple[int, int]:
        """Deletes blobs that nothing names; returns how many, and their bytes."""
        self._staging.expire(upload_ttl_seconds)
        limit = time.time() - self._grace
        named = sa.exists().where(version_blobs.c.digest == blobs.c.digest)
        async with self._database.read() as connection:
            rows = await connection.execute(
                sa.select(blobs.c.digest).where(blobs.c.touch_time <= limit, ~named)
            )
            candidates = [row.digest for row in rows]
        count = freed = 0
        for digest in candidates:
            async with self._database.write() as connection:
                # Looked at again under the lock: it may have been found or named since.
                row = (
                    await connection.execute(
                        sa.delete(blobs)
                        .where(blobs.c.digest == digest, blobs.c.touch_time <= limit, ~named)
                        .returning(blobs.c.size)
                    )
                ).first()
                if row is not None:
                    await self._store.delete(digest)
                    count, freed = count + 1, freed + int(row.size)
        metrics.BLOBS_COLLECTED.inc(count)
        return count, freed


async def touch(connection: AsyncConnection, digests: Sequence[str]) -> set[str]:
    """Marks stored blobs as looked for now, locking their rows; returns those found."""
    rows = await connection.execute(
        sa.update(blobs)
        .where(blobs.c.digest.in_(sorted(set(digests))))
        .values(touch_time=time.time())
        .returning(blobs.c.digest)
    )
    return {row.digest for row in rows}
