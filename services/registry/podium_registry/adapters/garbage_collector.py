"""Garbage collection: deletes the blobs that nothing names."""

from __future__ import annotations

import asyncio
import time

import sqlalchemy as sa
from podium.kit.sql import Database

from podium_registry.adapters.blobs import measure
from podium_registry.adapters.object_store import BlobStore
from podium_registry.adapters.staging import Staging
from podium_registry.adapters.tables import blobs, version_blobs
from podium_registry.domain import metrics


class GarbageCollector:
    """Deletes what no version names and nobody looked for lately; see `Blobs` for the order."""

    def __init__(
        self,
        database: Database,
        store: BlobStore,
        staging: Staging,
        *,
        grace_seconds: float,
        upload_ttl_seconds: float,
    ) -> None:
        """Sets how long things that nothing names are kept.

        Args:
            grace_seconds: a blob, after it was last looked for.
            upload_ttl_seconds: an unfinished upload, after its last byte.
        """
        self._database = database
        self._store = store
        self._staging = staging
        self._grace = grace_seconds
        self._upload_ttl = upload_ttl_seconds

    async def collect(self) -> tuple[int, int]:
        """Deletes blobs that nothing names; returns how many, and their bytes.

        Raises:
            UnavailableError: the store or the database cannot be reached; what
                was not deleted goes next time.
        """
        try:
            found = await self._collect()
        except BaseException:
            metrics.COLLECTIONS.labels("failed").inc()
            raise
        metrics.COLLECTIONS.labels("completed").inc()
        return found

    async def _collect(self) -> tuple[int, int]:
        await asyncio.to_thread(self._staging.expire, self._upload_ttl)
        limit = time.time() - self._grace
        named = sa.exists().where(version_blobs.c.digest == blobs.c.digest)
        garbage = sa.or_(blobs.c.deleting, sa.and_(blobs.c.touch_time <= limit, ~named))
        async with self._database.read() as connection:
            rows = await connection.execute(sa.select(blobs.c.digest).where(garbage))
            candidates = [row.digest for row in rows]
        count = freed = 0
        for digest in candidates:
            async with self._database.write() as connection:
                # Looked at again under the lock: it may have been found or named
                # since. Locked by a statement of its own: one that waits for a row
                # goes on with the other tables as they were before it waited.
                mine = blobs.c.digest == digest
                await connection.execute(sa.select(blobs.c.digest).where(mine).with_for_update())
                await connection.execute(
                    sa.update(blobs).where(mine, garbage).values(deleting=sa.true())
                )
            size = await self._bury(digest)
            if size is not None:
                count, freed = count + 1, freed + size
                metrics.BLOBS_COLLECTED.inc()
                metrics.BYTES_COLLECTED.inc(size)
        await measure(self._database)
        metrics.UPLOADS_IN_PROGRESS.set(self._staging.count)
        return count, freed

    async def _bury(self, digest: str) -> int | None:
        """Deletes a condemned blob; None when an upload has revived it meanwhile."""
        async with self._database.write() as connection:
            condemned = sa.and_(blobs.c.digest == digest, blobs.c.deleting)
            size = await connection.scalar(
                sa.select(blobs.c.size).where(condemned).with_for_update()
            )
            if size is None:
                return None
            await self._store.delete(digest)
            await connection.execute(sa.delete(blobs).where(condemned))
        return int(size)
