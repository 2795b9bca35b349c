"""Rows of versions, aliases and leases, inside a transaction of the caller's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from podium.registry.v1 import registry_service_pb2 as pb
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_registry.adapters.history import Change, record_all
from podium_registry.adapters.tables import aliases, leases, version_blobs, versions
from podium_registry.domain import metrics
from podium_registry.domain.manifests import no_version

# Of one statement.
_AT_ONCE = 1000


async def row_of(
    connection: AsyncConnection, model: str, version: int, *, lock: bool = False
) -> sa.Row[Any] | None:
    """The row of a version; None when there is none. `lock` keeps it until the transaction ends."""
    query = sa.select(versions).where(versions.c.model == model, versions.c.version == version)
    return (await connection.execute(query.with_for_update() if lock else query)).first()


async def read_version(connection: AsyncConnection, model: str, version: int) -> pb.Version:
    """A version as the contract has it. Raises NotFoundError."""
    (found,) = await read_versions(connection, model, [version])
    return found


async def read_versions(
    connection: AsyncConnection, model: str, numbers: Sequence[int]
) -> list[pb.Version]:
    """Versions of a model, in this order. Raises NotFoundError."""
    wanted = sa.and_(versions.c.model == model, versions.c.version.in_(numbers))
    rows = {row.version: row for row in await connection.execute(sa.select(versions).where(wanted))}
    names = await connection.execute(
        sa.select(aliases.c.alias, aliases.c.version)
        .where(aliases.c.model == model, aliases.c.version.in_(numbers))
        .order_by(aliases.c.alias)
    )
    pointing: dict[int, list[str]] = {}
    for name in names:
        pointing.setdefault(name.version, []).append(name.alias)
    if missing := set(numbers) - set(rows):
        raise no_version(model, min(missing))
    return [_message(rows[number], pointing.get(number, [])) for number in numbers]


def _message(row: sa.Row[Any], names: Sequence[str]) -> pb.Version:
    result = pb.Version(
        manifest=pb.Manifest.FromString(row.manifest),
        manifest_digest=row.manifest_digest,
        aliases=names,
        total_bytes=row.total_bytes,
        evaluation_metrics=row.evaluation,
        state_files=state_files(row),
    )
    result.create_time.FromNanoseconds(int(row.create_time * 1e9))
    return result


def state_files(row: sa.Row[Any]) -> list[pb.File]:
    """The files that were added to a version after it was published."""
    return list(pb.AddStateRequest.FromString(row.state).files) if row.state else []


async def newest_version(connection: AsyncConnection, model: str) -> int | None:
    """The greatest number of a model's versions."""
    query = sa.select(sa.func.max(versions.c.version)).where(versions.c.model == model)
    newest: int | None = await connection.scalar(query)
    return newest


async def version_of_alias(
    connection: AsyncConnection, model: str, alias: str, *, lock: bool = False
) -> int | None:
    """What an alias points at; None when there is no such alias."""
    query = sa.select(aliases.c.version).where(aliases.c.model == model, aliases.c.alias == alias)
    version: int | None = await connection.scalar(query.with_for_update() if lock else query)
    return version


async def point_alias(connection: AsyncConnection, model: str, alias: str, version: int) -> None:
    """Moves an alias, or makes it."""
    moved = await connection.execute(
        sa.update(aliases)
        .where(aliases.c.model == model, aliases.c.alias == alias)
        .values(version=version)
    )
    if moved.rowcount == 0:
        await add_alias(connection, model, alias, version)


async def add_alias(connection: AsyncConnection, model: str, alias: str, version: int) -> None:
    """Makes an alias. Raises IntegrityError where there is one."""
    await connection.execute(sa.insert(aliases).values(model=model, alias=alias, version=version))


async def user_of(connection: AsyncConnection, model: str, version: int) -> str:
    """Who keeps a version from being deleted, in words; empty for nobody."""
    alias = await connection.scalar(
        sa.select(aliases.c.alias).where(aliases.c.model == model, aliases.c.version == version)
    )
    if alias is not None:
        return f"alias {alias!r}"
    holder = await connection.scalar(
        sa.select(leases.c.holder).where(
            leases.c.model == model,
            leases.c.version == version,
            leases.c.expire_time > time.time(),
        )
    )
    return "" if holder is None else f"lease of {holder!r}"


async def used_versions(connection: AsyncConnection, model: str) -> set[int]:
    """Those that somebody keeps from being deleted, as `user_of` tells of one."""
    pointed = sa.select(aliases.c.version).where(aliases.c.model == model)
    leased = sa.select(leases.c.version).where(
        leases.c.model == model, leases.c.expire_time > time.time()
    )
    return set(await connection.scalars(pointed)) | set(await connection.scalars(leased))


async def delete_versions(connection: AsyncConnection, model: str, numbers: Sequence[int]) -> None:
    """Deletes versions, with their leases, and records each, in this order."""
    for first in range(0, len(numbers), _AT_ONCE):
        some = numbers[first : first + _AT_ONCE]
        for table in (versions, version_blobs, leases):
            await connection.execute(
                sa.delete(table).where(table.c.model == model, table.c.version.in_(some))
            )
        await record_all(connection, Change.DELETED, model, some)
    metrics.VERSIONS_DELETED.inc(len(numbers))
