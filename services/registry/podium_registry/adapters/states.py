"""The state of published versions, which comes after their weights."""

from __future__ import annotations

import sqlalchemy as sa
from podium.core.errors import AlreadyExistsError, NotFoundError
from podium.core.version_state import state_in
from podium.kit.sql import Database
from podium.registry.v1 import registry_service_pb2 as pb
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_registry.adapters.blobs import Blobs, touch
from podium_registry.adapters.history import Change, ChangeLog, record
from podium_registry.adapters.tables import version_blobs, versions
from podium_registry.adapters.version_rows import read_version, row_of, state_files
from podium_registry.domain.manifests import check_state, check_stored, no_version


class States:
    """Adds to a version, once, what resumes it, and finds the newest that has it."""

    def __init__(self, database: Database, history: ChangeLog, blobs: Blobs) -> None:
        """`history` is told of every change; `blobs` looks whether a state's are there."""
        self._database = database
        self._history = history
        self._blobs = blobs

    async def add(self, request: pb.AddStateRequest) -> pb.Version:
        """Adds the files, or finds that they are there.

        Raises:
            NotFoundError: the version.
            AlreadyExistsError: STATE_EXISTS, with other files.
            InvalidArgumentError: a file outside `state/`, or of another size than its blob.
            FailedPreconditionError: MISSING_BLOB: never uploaded, or lost since.
        """
        await self._blobs.look([file.digest for file in request.files])
        async with self._database.write() as connection:
            added = await _add(connection, request)
        if added:
            self._history.wake()
        async with self._database.read() as connection:
            return await read_version(connection, request.model, request.version)

    async def newest(self, model: str, version: int) -> pb.Version:
        """The newest version up to one that has state. Raises NotFoundError."""
        query = sa.select(versions.c.version, versions.c.manifest, versions.c.state).where(
            versions.c.model == model, versions.c.version <= version
        )
        async with self._database.read() as connection:
            rows = await connection.stream(query.order_by(versions.c.version.desc()))
            async for row in rows:
                if row.state or state_in(pb.Manifest.FromString(row.manifest)):
                    await rows.close()
                    return await read_version(connection, model, row.version)
        raise NotFoundError(
            f"no version of {model!r} up to {version} has state",
            reason="STATE_NOT_STORED",
            metadata={"model": model, "version": str(version)},
        )


async def _add(connection: AsyncConnection, request: pb.AddStateRequest) -> bool:
    row = await row_of(connection, request.model, request.version, lock=True)
    if row is None:
        raise no_version(request.model, request.version)
    manifest = pb.Manifest.FromString(row.manifest)
    files = list(request.files)
    if row.state or state_in(manifest):
        known = {(file.path, file.digest) for file in [*manifest.files, *state_files(row)]}
        if all((file.path, file.digest) in known for file in files):
            return False
        raise AlreadyExistsError(
            f"{request.model}@{request.version} has another state",
            reason="STATE_EXISTS",
            metadata={"model": request.model, "version": str(request.version)},
        )
    check_state(files, manifest)
    names = {file.digest for file in files}
    stored = await touch(connection, sorted(names))
    check_stored(files, stored, "files")
    # What lies in the weights as well is stored once.
    fresh = sorted(names - {file.digest for file in manifest.files})
    key = {"model": request.model, "version": request.version}
    await connection.execute(
        sa.update(versions)
        .where(versions.c.model == request.model, versions.c.version == request.version)
        .values(
            state=request.SerializeToString(),
            total_bytes=row.total_bytes + sum(stored[name] for name in fresh),
        )
    )
    if fresh:
        await connection.execute(
            sa.insert(version_blobs), [{**key, "digest": name} for name in fresh]
        )
    await record(connection, Change.STATE_ADDED, request.model, request.version)
    return True
