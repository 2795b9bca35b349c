"""Which controller runs the jobs: a row that its holder keeps renewing."""

from __future__ import annotations

from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from podium_controller.domain.errors import LeaseLostError
from podium_controller.store.clock import database_seconds
from podium_controller.store.database import Database
from podium_controller.store.tables import leases

_NAME = "controller"


class LeaseStore:
    """Takes, renews and gives back the one lease of this database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def acquire(self, holder: str, ttl: float) -> int | None:
        """Takes the lease for `ttl` seconds when nobody holds it.

        Returns:
            The fencing token: greater than every earlier holder's; None when
            another holds the lease.
        """
        try:
            async with self._database.write(urgent=True) as connection:
                return await self._take(connection, holder, ttl)
        except IntegrityError:
            return None

    async def renew(self, holder: str, epoch: int, ttl: float) -> bool:
        """Holds on for `ttl` seconds more; False when another has taken the lease."""
        async with self._database.write(urgent=True) as connection:
            result = await connection.execute(
                update(leases)
                .where(leases.c.name == _NAME)
                .where(leases.c.holder == holder)
                .where(leases.c.epoch == epoch)
                .values(expires=database_seconds() + ttl)
            )
            return result.rowcount == 1

    async def release(self, holder: str, epoch: int) -> None:
        """Gives the lease back, so that a standby need not wait. Idempotent."""
        async with self._database.write(urgent=True) as connection:
            await connection.execute(
                update(leases)
                .where(leases.c.name == _NAME)
                .where(leases.c.holder == holder)
                .where(leases.c.epoch == epoch)
                .values(expires=0.0)
            )

    async def _take(self, connection: AsyncConnection, holder: str, ttl: float) -> int | None:
        now = database_seconds()
        row = (
            await connection.execute(
                select(leases.c.epoch, (leases.c.expires > now).label("alive"))
                .where(leases.c.name == _NAME)
                .with_for_update()
            )
        ).one_or_none()
        if row is None:
            await connection.execute(
                insert(leases).values(name=_NAME, holder=holder, epoch=1, expires=now + ttl)
            )
            return 1
        if row.alive:
            return None
        epoch: int = row.epoch + 1
        await connection.execute(
            update(leases)
            .where(leases.c.name == _NAME)
            .values(holder=holder, epoch=epoch, expires=now + ttl)
        )
        return epoch


async def check_fence(connection: AsyncConnection, epoch: int) -> None:
    """Lets a transaction go on only under the newest lease, and keeps it so until it commits.

    Raises:
        LeaseLostError: another controller has taken over.
    """
    current = (
        await connection.execute(
            select(leases.c.epoch)
            .where(leases.c.name == _NAME)
            # Shared with a renewal too, which many writers could keep waiting for ever.
            .with_for_update(read=True, key_share=True)
        )
    ).scalar_one_or_none()
    if current != epoch:
        raise LeaseLostError("another controller has taken over")
