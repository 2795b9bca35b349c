"""Blobs: uploading, finding and reading."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import google_crc32c
import sqlalchemy as sa
from podium.core.errors import (
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PodiumError,
    UnavailableError,
    Violation,
)
from podium.kit.sql import Database
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_registry.adapters.object_store import BlobStore
from podium_registry.adapters.staging import CHUNK_BYTES, Staging, Upload, content_of, one_writer
from podium_registry.adapters.tables import blobs
from podium_registry.domain import metrics
from podium_registry.domain.digests import check_digest

logger = logging.getLogger(__name__)

_STORE_ATTEMPTS = 5
_PARALLEL_LOOKS = 16


class _ObjectGone(Exception):  # noqa: N818 - no error: the collector was faster
    pass


class Blobs:
    """Content-addressed bytes.

    A row that is not `deleting` promises that its object is there. An upload
    stores the object first, then looks for it again under the row's lock in
    the transaction that makes the promise. The collector takes the promise
    back in one transaction, and in another, holding the row's lock, deletes
    the object and then the row: whenever either dies, the promise holds.

    A promise that a store has broken, by losing or altering the object, is marked
    `damaged` as soon as it is seen: the blob then counts as not stored until an
    upload of the same bytes has replaced the object. It is still read, for the
    store may have been restored; what is damaged in it is not handed out.
    """

    def __init__(
        self, database: Database, store: BlobStore, staging: Staging, *, max_bytes: int
    ) -> None:
        """`max_bytes`: greatest blob."""
        self._database = database
        self._store = store
        self._staging = staging
        self._max_bytes = max_bytes

    async def find(self, digests: Sequence[str]) -> list[str]:
        """Those that are stored; each is kept for the grace period from now.

        Raises:
            InvalidArgumentError: a malformed digest.
        """
        for index, digest in enumerate(digests):
            check_digest(digest, f"digests[{index}]")
        await self.look(digests)
        async with self._database.write() as connection:
            return sorted(await touch(connection, digests))

    async def look(self, digests: Sequence[str]) -> None:
        """Marks those whose objects are missing or of another length, as the store tells it.

        Raises:
            UnavailableError: the store cannot be reached.
            FailedPreconditionError: STORE_FORBIDDEN.
        """
        async with self._database.read() as connection:
            rows = await connection.execute(
                sa.select(blobs.c.digest, blobs.c.size).where(
                    blobs.c.digest.in_(sorted(set(digests))), _usable()
                )
            )
            promised = {row.digest: int(row.size) for row in rows}
        gate = asyncio.Semaphore(_PARALLEL_LOOKS)

        async def stored(digest: str) -> int | None:
            async with gate:
                return await self._store.size(digest)

        sizes = await asyncio.gather(*map(stored, promised))
        for (digest, promise), size in zip(promised.items(), sizes, strict=True):
            if size != promise and await self._mark(digest):
                _tell_damage(digest, _hole(size, promise))

    async def _mark(self, digest: str) -> bool:
        """Takes the promise back; whether it stood."""
        async with self._database.write() as connection:
            marked = await connection.execute(
                sa.update(blobs)
                .where(blobs.c.digest == digest, _usable())
                .values(damaged=sa.true())
            )
        return marked.rowcount > 0

    async def _damaged(self, digest: str, why: str) -> DataLossError:
        """The error of a read, whose blob is marked."""
        _tell_damage(digest, why)
        try:
            await self._mark(digest)
        except PodiumError as error:
            # The reader is told all the same; the next one marks it.
            logger.warning("could not mark a damaged blob: %s", error.message)
        return DataLossError(
            f"blob {digest} is damaged: {why}; an upload of the same bytes mends it",
            reason="BLOB_DAMAGED",
            metadata={"digest": digest},
        )

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
        await self.look([digest])
        async with self._database.write() as connection:
            if await touch(connection, [digest]):
                return None
        upload = await asyncio.to_thread(self._staging.start, digest, size)
        metrics.UPLOADS_IN_PROGRESS.set(self._staging.count)
        return upload

    def upload(self, upload_id: str) -> Upload:
        """An unfinished upload. Raises NotFoundError."""
        return self._staging.get(upload_id)

    async def progress(self, upload_id: str) -> tuple[int, int, bool]:
        """(persisted bytes, declared bytes, stored and verified) of an upload.

        Raises:
            NotFoundError: it was never begun here, or it expired.
        """
        try:
            upload = self._staging.get(upload_id)
            return await asyncio.to_thread(upload.persist), upload.size, False
        except NotFoundError:
            content = content_of(upload_id)
            if content is None:
                raise
            async with self._database.read() as connection:
                size = await _size(connection, content[0])
            if size != content[1]:
                raise
            return size, size, True

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
            DataLossError: WRONG_DIGEST; the upload begins again at 0.
            ResourceExhaustedError: STORAGE_FULL; the upload stays.
            UnavailableError: the store cannot be reached; the upload stays.
        """
        checks = await asyncio.to_thread(upload.verify)
        for _ in range(_STORE_ATTEMPTS):
            replace = await self._is_damaged(upload.digest)
            await self._store.put(upload.digest, upload.path, replace=replace)
            # Another replica was first, or the collector was: look again.
            with suppress(IntegrityError, _ObjectGone):
                await self._promise(upload, checks)
                break
        else:
            raise UnavailableError(
                "the blob is being collected; try again", reason="BLOB_BEING_COLLECTED"
            )
        await asyncio.to_thread(self._staging.finish, upload)
        await measure(self._database)
        metrics.UPLOADS_IN_PROGRESS.set(self._staging.count)

    async def _is_damaged(self, digest: str) -> bool:
        async with self._database.read() as connection:
            marked = await connection.scalar(
                sa.select(blobs.c.damaged).where(blobs.c.digest == digest)
            )
        return bool(marked)

    async def _promise(self, upload: Upload, checks: bytes) -> None:
        """Writes the row. Raises _ObjectGone, and writes none, when the object is not there."""
        async with self._database.write() as connection:
            if await touch(connection, [upload.digest]):
                return
            values = {
                "size": upload.size,
                "touch_time": time.time(),
                "chunk_crc32c": checks,
                "deleting": False,
                "damaged": False,
            }
            mine = blobs.c.digest == upload.digest
            # From here on the row is locked, so the collector is not at its object.
            revived = await connection.execute(sa.update(blobs).where(mine).values(values))
            if revived.rowcount == 0:
                await connection.execute(sa.insert(blobs).values(digest=upload.digest, **values))
            if await self._store.size(upload.digest) != upload.size:
                raise _ObjectGone

    async def size(self, digest: str) -> int:
        """Bytes of a stored blob. Raises NotFoundError."""
        async with self._database.read() as connection:
            size = await _size(connection, digest)
        if size is None:
            raise _not_stored(digest)
        return size

    async def read(self, digest: str, offset: int) -> AsyncIterator[tuple[int, bytes, int]]:
        """(offset, bytes, whole size) from an offset on.

        Raises:
            NotFoundError: no such blob.
            OutOfRangeError: an offset past the end.
            DataLossError: BLOB_DAMAGED: the stored bytes are not those that were
                uploaded, or are gone; no damaged byte is handed out.
        """
        async with self._database.read() as connection:
            row = (
                await connection.execute(
                    sa.select(blobs.c.size, blobs.c.chunk_crc32c).where(
                        blobs.c.digest == digest, ~blobs.c.deleting
                    )
                )
            ).first()
        if row is None:
            raise _not_stored(digest)
        size = int(row.size)
        if offset > size:
            raise OutOfRangeError(
                f"offset {offset} is past the blob's end at {size}",
                metadata={"offset": str(offset), "size": str(size)},
            )
        stored = await self._store.size(digest)
        if stored != size:
            raise await self._damaged(digest, _hole(stored, size))
        # Chunks are checked whole, so the first one may begin before the offset.
        at = offset - offset % CHUNK_BYTES
        async for chunk in self._chunks(digest, at, size):
            check = at // CHUNK_BYTES * 4
            expected = row.chunk_crc32c[check : check + 4]
            if google_crc32c.value(chunk) != int.from_bytes(expected, "big"):
                raise await self._damaged(
                    digest, f"the stored bytes from {at} on are not what was uploaded"
                )
            data = chunk[max(offset - at, 0) :]
            at += len(chunk)
            metrics.BYTES_DOWNLOADED.inc(len(data))
            if data:
                yield at - len(data), data, size

    async def _chunks(self, digest: str, at: int, size: int) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._store.read(digest, at, size):
                yield chunk
        except NotFoundError:
            # It was there a moment ago, and its row still promises it.
            raise await self._damaged(digest, _hole(None, size)) from None


async def measure(database: Database) -> None:
    """Sets the gauge of what is stored."""
    async with database.read() as connection:
        total = await connection.scalar(sa.select(sa.func.sum(blobs.c.size)))
    metrics.STORAGE_BYTES.set(total or 0)


async def touch(connection: AsyncConnection, digests: Sequence[str]) -> dict[str, int]:
    """Marks stored blobs as looked for now, and locks their rows.

    Returns:
        The sizes of those found, by digest.
    """
    wanted = sorted(set(digests))
    # Locked in one order, or two calls with the same blobs would wait for each other.
    rows = await connection.execute(
        sa.select(blobs.c.digest, blobs.c.size)
        .where(blobs.c.digest.in_(wanted), _usable())
        .order_by(blobs.c.digest)
        .with_for_update()
    )
    found = {row.digest: int(row.size) for row in rows}
    if found:
        seen = sa.update(blobs).where(blobs.c.digest.in_(sorted(found)))
        await connection.execute(seen.values(touch_time=time.time()))
    return found


async def _size(connection: AsyncConnection, digest: str) -> int | None:
    size = await connection.scalar(
        sa.select(blobs.c.size).where(blobs.c.digest == digest, _usable())
    )
    return None if size is None else int(size)


def _not_stored(digest: str) -> NotFoundError:
    return NotFoundError(
        f"blob {digest} is not stored", reason="BLOB_NOT_FOUND", metadata={"digest": digest}
    )


def _usable() -> sa.ColumnElement[bool]:
    return sa.and_(~blobs.c.deleting, ~blobs.c.damaged)


def _hole(stored: int | None, size: int) -> str:
    return f"{stored or 0} bytes are stored, not {size}"


def _tell_damage(digest: str, why: str) -> None:
    metrics.DAMAGED_BLOBS.inc()
    logger.error("a stored blob is damaged: %s", why, extra={"digest": digest})
