"""A replica of the controller's store, on a database or in memory, and rows to put in."""

from __future__ import annotations

from typing import Protocol

from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain.leases import Leases
from podium_controller.domain.notifications import Notifications
from podium_controller.domain.ports import LeaderLedger
from podium_controller.domain.timestamps import now_ns, timestamp
from podium_controller.store import (
    BatchStore,
    ClientStore,
    Database,
    JobStore,
    LeaseStore,
    SqlLedger,
)
from podium_controller.store.jobs import NewJob
from support.fakes.batches import MemoryBatchStore, MemoryClientStore
from support.fakes.database import MemoryDatabase
from support.fakes.jobs import MemoryJobStore
from support.fakes.leases import MemoryLeases
from support.fakes.ledger import MemoryLedger


class Stores(Protocol):
    """One replica."""

    notifications: Notifications
    jobs: JobStore
    leases: Leases
    batches: BatchStore
    clients: ClientStore

    def ledger(self, epoch: int) -> LeaderLedger:
        """What the holder of that lease writes through."""

    def another(self) -> Stores:
        """Another replica of the same installation."""

    async def close(self) -> None:
        """Ends it."""


class SqlStores:
    """On a database that is migrated."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._others: list[SqlStores] = []
        self.database = Database(url)
        self.notifications = Notifications()
        self.jobs = JobStore(self.database, self.notifications)
        self.leases = LeaseStore(self.database)
        self.batches = BatchStore(self.database, self.notifications)
        self.clients = ClientStore(self.database, self.notifications)

    def ledger(self, epoch: int) -> SqlLedger:
        return SqlLedger(self.database, self.notifications, epoch)

    def another(self) -> SqlStores:
        self._others.append(SqlStores(self._url))
        return self._others[-1]

    async def close(self) -> None:
        for each in self._others:
            await each.close()
        await self.database.close()


class MemoryStores:
    """In memory."""

    def __init__(self, database: MemoryDatabase | None = None) -> None:
        self._database = database or MemoryDatabase()
        self.notifications = Notifications()
        self.jobs = MemoryJobStore(self._database, self.notifications)
        self.leases = MemoryLeases(self._database)
        self.batches = MemoryBatchStore(self._database, self.notifications)
        self.clients = MemoryClientStore(self._database, self.notifications)

    def ledger(self, epoch: int) -> MemoryLedger:
        return MemoryLedger(self._database, self.notifications, epoch)

    def another(self) -> MemoryStores:
        return MemoryStores(self._database)

    async def close(self) -> None:
        pass


async def lead(stores: Stores, holder: str = "test", ttl: float = 60) -> LeaderLedger:
    """The ledger of a lease that nobody held."""
    epoch = await stores.leases.acquire(holder, ttl)
    assert epoch is not None
    return stores.ledger(epoch)


def new(job_id: str = "job", *, request_id: str = "", digest: str = "d", steps: int = 5) -> NewJob:
    spec = spec_pb2.JobSpec(base_model="m", training=spec_pb2.TrainingSpec(steps=steps))
    return NewJob(job_id, spec, request_id, digest, "")


def group(step: int, index: int, *, mode: str = "", attempts: int = 3) -> trajectory_pb2.Group:
    id_ = f"job/v{step}-{mode}/g{index}" if mode else f"job/s{step}/g{index}"
    result = trajectory_pb2.Group(id=id_, job_id="job", step=step)
    for attempt in range(attempts):
        result.trajectories.add(id=f"{id_}/t{attempt}", attempt=attempt)
    return result


def step(number: int, *group_ids: str) -> pb.Step:
    return pb.Step(
        number=number,
        version=number,
        group_ids=group_ids,
        metrics={"reward_mean": 0.5 * number},
        start_time=timestamp(now_ns()),
        commit_time=timestamp(now_ns()),
    )
