"""Versions, aliases, leases and their history, each change one transaction."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from podium.core.errors import (
    AbortedError,
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    Violation,
)
from podium.core.page_tokens import decode_page_token, encode_page_token
from podium.core.version_state import state_in
from podium.kit.sql import Database
from podium.registry.v1 import registry_service_pb2 as pb
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_registry.adapters.blobs import Blobs, touch
from podium_registry.adapters.history import Change, ChangeLog, record
from podium_registry.adapters.tables import aliases, leases, requests, version_blobs, versions
from podium_registry.adapters.version_rows import (
    add_alias,
    delete_versions,
    newest_version,
    point_alias,
    read_version,
    read_versions,
    row_of,
    used_versions,
    user_of,
    version_of_alias,
)
from podium_registry.domain import metrics
from podium_registry.domain.digests import of_bytes
from podium_registry.domain.manifests import (
    LATEST,
    check_alias,
    check_finite,
    check_manifest,
    check_stored,
    no_version,
)
from podium_registry.domain.retention import Rated, Rule, kept

T = TypeVar("T")


class Versions:
    """Published versions of every model."""

    def __init__(self, database: Database, history: ChangeLog, blobs: Blobs) -> None:
        """`history` is told of every change; `blobs` looks whether a version's are there."""
        self._database = database
        self._history = history
        self._blobs = blobs

    async def create(self, manifest: pb.Manifest, request_id: str) -> pb.Version:
        """Publishes a manifest whole, or finds what the same request published.

        Raises:
            InvalidArgumentError: files that cannot lie in one folder, a size
                that is not the blob's, or a number that is not finite.
            AlreadyExistsError: the version, or the request id with another body.
            FailedPreconditionError: MISSING_BLOB: never uploaded, or lost since.
            NotFoundError: a parent.
        """
        check_manifest(manifest)
        body = manifest.SerializeToString(deterministic=True)
        digest = of_bytes(body)
        await self._blobs.look([file.digest for file in manifest.files])
        if await _twice(lambda: self._insert(manifest, body, digest, request_id)):
            metrics.VERSIONS_CREATED.inc()
            self._history.wake()
        return await self.get(manifest.model, manifest.version)

    async def _insert(
        self, manifest: pb.Manifest, body: bytes, digest: str, request_id: str
    ) -> bool:
        async with self._database.write() as connection:
            # In this order: each statement of PostgreSQL sees what was committed before it,
            # so a request whose version is there is seen as well.
            exists = await row_of(connection, manifest.model, manifest.version) is not None
            if request_id and await self._seen(connection, request_id, digest):
                return False
            if exists:
                raise AlreadyExistsError(
                    f"version {manifest.model}@{manifest.version} exists",
                    reason="VERSION_EXISTS",
                    metadata={"model": manifest.model, "version": str(manifest.version)},
                )
            for parent in manifest.parents:
                if await row_of(connection, parent.model, parent.version) is None:
                    raise no_version(parent.model, parent.version)
            names = {file.digest for file in manifest.files}
            stored = await touch(connection, sorted(names))
            check_stored(manifest.files, stored)
            key = {"model": manifest.model, "version": manifest.version}
            await connection.execute(
                sa.insert(versions).values(
                    **key,
                    manifest=body,
                    manifest_digest=digest,
                    total_bytes=sum(file.size for file in manifest.files),
                    create_time=time.time(),
                    evaluation={},
                )
            )
            await connection.execute(
                sa.insert(version_blobs), [{**key, "digest": name} for name in sorted(names)]
            )
            if request_id:
                await connection.execute(
                    sa.insert(requests).values(request_id=request_id, manifest_digest=digest, **key)
                )
            await record(connection, Change.CREATED, manifest.model, manifest.version)
            newest = await newest_version(connection, manifest.model)
            if newest == manifest.version:
                await point_alias(connection, manifest.model, LATEST, manifest.version)
        return True

    async def _seen(self, connection: AsyncConnection, request_id: str, digest: str) -> bool:
        row = (
            await connection.execute(sa.select(requests).where(requests.c.request_id == request_id))
        ).first()
        if row is None:
            return False
        if row.manifest_digest != digest:
            raise AlreadyExistsError(
                f"request_id {request_id!r} was used with another manifest",
                reason="REQUEST_ID_REUSED",
                metadata={"request_id": request_id},
            )
        return True

    async def get(self, model: str, version: int) -> pb.Version:
        """A version by number. Raises NotFoundError."""
        async with self._database.read() as connection:
            return await read_version(connection, model, version)

    async def get_by_alias(self, model: str, alias: str) -> pb.Version:
        """A version by alias. Raises NotFoundError."""
        async with self._database.read() as connection:
            version = await version_of_alias(connection, model, alias)
            if version is None:
                raise NotFoundError(
                    f"model {model!r} has no alias {alias!r}",
                    reason="ALIAS_NOT_FOUND",
                    metadata={"model": model, "alias": alias},
                )
            return await read_version(connection, model, version)

    async def page(self, model: str, size: int, token: str) -> tuple[list[pb.Version], str]:
        """A page of a model's versions, newest first, and the next page's token."""
        after = decode_page_token(token, ["versions", model], [int])
        query = sa.select(versions.c.version).where(versions.c.model == model)
        if after is not None:
            query = query.where(versions.c.version < after[0])
        async with self._database.read() as connection:
            rows = await connection.execute(
                query.order_by(versions.c.version.desc()).limit(size + 1)
            )
            numbers = [row.version for row in rows]
            page = await read_versions(connection, model, numbers[:size])
        more = len(numbers) > size
        return page, encode_page_token([numbers[size - 1]], ["versions", model]) if more else ""

    async def models(self, size: int, token: str) -> tuple[list[pb.Model], str]:
        """A page of the models by name, and the next page's token."""
        after = decode_page_token(token, ["models"], [str])
        query = sa.select(
            versions.c.model,
            sa.func.max(versions.c.version).label("latest"),
            sa.func.count().label("number"),
        ).group_by(versions.c.model)
        if after is not None:
            query = query.where(versions.c.model > after[0])
        async with self._database.read() as connection:
            rows = list(await connection.execute(query.order_by(versions.c.model).limit(size + 1)))
        page = [
            pb.Model(name=row.model, latest_version=row.latest, version_count=row.number)
            for row in rows[:size]
        ]
        return page, encode_page_token([page[-1].name], ["models"]) if len(rows) > size else ""

    async def delete(self, model: str, version: int) -> None:
        """Deletes a version; none is no error.

        Raises:
            FailedPreconditionError: VERSION_IN_USE.
        """
        async with self._database.write() as connection:
            if await row_of(connection, model, version, lock=True) is None:
                return
            user = await user_of(connection, model, version)
            if user:
                raise FailedPreconditionError(
                    f"{model}@{version} is in use by {user}",
                    reason="VERSION_IN_USE",
                    metadata={"model": model, "version": str(version), "user": user},
                )
            await delete_versions(connection, model, [version])
        self._history.wake()

    async def set_alias(
        self, model: str, alias: str, version: int, expected: int | None
    ) -> pb.Version:
        """Points an alias at a version.

        Raises:
            InvalidArgumentError: `latest`.
            NotFoundError: the version.
            AbortedError: ALIAS_MOVED.
        """
        check_alias(alias)
        await _twice(lambda: self._set_alias(model, alias, version, expected))
        self._history.wake()
        return await self.get(model, version)

    async def _set_alias(self, model: str, alias: str, version: int, expected: int | None) -> None:
        async with self._database.write() as connection:
            if await row_of(connection, model, version, lock=True) is None:
                raise no_version(model, version)
            current = await version_of_alias(connection, model, alias, lock=True)
            if expected is not None and (current if current is not None else -1) != expected:
                where = "nowhere" if current is None else f"version {current}"
                raise AbortedError(
                    f"alias {alias!r} of {model!r} points at {where}, not {expected}",
                    reason="ALIAS_MOVED",
                    metadata={"current": str(-1 if current is None else current)},
                )
            if current is None:
                # No row to lock: who is second fails here, and looks again.
                await add_alias(connection, model, alias, version)
            elif current != version:
                await point_alias(connection, model, alias, version)
            else:
                return
            await record(connection, Change.ALIAS_SET, model, version, alias)

    async def delete_alias(self, model: str, alias: str) -> None:
        """Removes an alias; none is no error. Raises InvalidArgumentError for `latest`."""
        check_alias(alias)
        async with self._database.write() as connection:
            current = await version_of_alias(connection, model, alias, lock=True)
            if current is None:
                return
            await connection.execute(
                sa.delete(aliases).where(aliases.c.model == model, aliases.c.alias == alias)
            )
            await record(connection, Change.ALIAS_DELETED, model, current, alias)
        self._history.wake()

    async def record_evaluation(
        self, model: str, version: int, numbers: Mapping[str, float]
    ) -> pb.Version:
        """Adds numbers to a version's evaluation. Raises NotFoundError."""
        check_finite(numbers, "metrics")
        async with self._database.write() as connection:
            row = await row_of(connection, model, version, lock=True)
            if row is None:
                raise no_version(model, version)
            await connection.execute(
                sa.update(versions)
                .where(versions.c.model == model, versions.c.version == version)
                .values(evaluation={**row.evaluation, **numbers})
            )
        return await self.get(model, version)

    async def lineage(self, model: str, version: int, limit: int) -> list[pb.VersionRef]:
        """The ancestors, nearest first, breadth first. Raises NotFoundError."""
        async with self._database.read() as connection:
            start = await row_of(connection, model, version)
            if start is None:
                raise no_version(model, version)
            found: list[pb.VersionRef] = []
            seen = {(model, version)}
            queue = list(pb.Manifest.FromString(start.manifest).parents)
            while queue and len(found) < limit:
                ref = queue.pop(0)
                if (ref.model, ref.version) in seen:
                    continue
                seen.add((ref.model, ref.version))
                row = await row_of(connection, ref.model, ref.version)
                if row is not None:
                    found.append(ref)
                    queue += pb.Manifest.FromString(row.manifest).parents
        return found

    async def acquire_lease(
        self, model: str, version: int, holder: str, ttl_seconds: float
    ) -> tuple[str, float]:
        """Takes or renews a lease: its id and when it ends, Unix seconds.

        Raises:
            NotFoundError: the version.
        """
        async with self._database.write() as connection:
            if await row_of(connection, model, version, lock=True) is None:
                raise no_version(model, version)
            ends = time.time() + ttl_seconds
            mine = sa.and_(
                leases.c.model == model, leases.c.version == version, leases.c.holder == holder
            )
            row = (
                await connection.execute(
                    sa.update(leases)
                    .where(mine)
                    .values(expire_time=ends)
                    .returning(leases.c.lease_id)
                )
            ).first()
            if row is not None:
                return row.lease_id, ends
            lease_id = uuid.uuid4().hex
            await connection.execute(
                sa.insert(leases).values(
                    lease_id=lease_id,
                    model=model,
                    version=version,
                    holder=holder,
                    expire_time=ends,
                )
            )
        return lease_id, ends

    async def release_lease(self, lease_id: str) -> None:
        """Gives a lease back; none is no error."""
        async with self._database.write() as connection:
            await connection.execute(sa.delete(leases).where(leases.c.lease_id == lease_id))

    async def retain(
        self,
        model: str,
        last: int,
        best: int,
        metric: str,
        lower_is_better: bool,
        named: Sequence[int] = (),
    ) -> list[int]:
        """Deletes what is not kept by the rule, not `named` and not used; returns the numbers.

        Raises:
            InvalidArgumentError: keep_best without a metric.
        """
        if best and not metric:
            raise InvalidArgumentError(
                violations=[Violation("metric", "must be set when keep_best is above 0")]
            )
        async with self._database.write() as connection:
            rows = list(
                await connection.execute(
                    sa.select(versions)
                    .where(versions.c.model == model)
                    .order_by(versions.c.version.desc())
                    .with_for_update()
                )
            )
            keep = kept([_rated(row) for row in rows], Rule(last, best, metric, lower_is_better))
            keep |= set(named) | await used_versions(connection, model)
            deleted = [row.version for row in rows if row.version not in keep]
            await delete_versions(connection, model, deleted)
        if deleted:
            self._history.wake()
        return sorted(deleted)


def _rated(row: sa.Row[Any]) -> Rated:
    manifest = pb.Manifest.FromString(row.manifest)
    has_state = bool(row.state) or state_in(manifest)
    return Rated(row.version, {**manifest.metrics, **row.evaluation}, has_state)


async def _twice(change: Callable[[], Awaitable[T]]) -> T:
    """Repeats a transaction whose row another one, of this or another replica, wrote first."""
    try:
        return await change()
    except IntegrityError:
        return await change()
