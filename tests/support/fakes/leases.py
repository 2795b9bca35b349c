"""`podium_controller.domain.leases.Leases` in memory."""

from __future__ import annotations

from support.fakes.database import Lease, MemoryDatabase

CONTROLLER = "controller"


class MemoryLeases:
    """See `podium_controller.store.LeaseStore`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def acquire(self, holder: str, ttl: float) -> int | None:
        def work() -> int | None:
            leases, now = self._database.leases, self._database.clock()
            lease = leases.get(CONTROLLER)
            if lease is not None and lease.expires > now:
                return None
            epoch = 1 if lease is None else lease.epoch + 1
            leases[CONTROLLER] = Lease(holder, epoch, now + ttl)
            return epoch

        return await self._database.transact(work)

    async def renew(self, holder: str, epoch: int, ttl: float) -> bool:
        def work() -> bool:
            lease = self._mine(holder, epoch)
            if lease is not None:
                lease.expires = self._database.clock() + ttl
            return lease is not None

        return await self._database.transact(work)

    async def release(self, holder: str, epoch: int) -> None:
        def work() -> None:
            lease = self._mine(holder, epoch)
            if lease is not None:
                lease.expires = 0.0

        await self._database.transact(work)

    def _mine(self, holder: str, epoch: int) -> Lease | None:
        lease = self._database.leases.get(CONTROLLER)
        if lease is None or (lease.holder, lease.epoch) != (holder, epoch):
            return None
        return lease
