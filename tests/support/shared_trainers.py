"""A controller's scheduler over peers in memory, with one trainer that jobs share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from podium.core.errors import UnavailableError
from podium.core.tasks import cancel_and_wait
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from podium_controller.api.specification import complete
from podium_controller.domain.notifications import Notifications
from podium_controller.domain.ports import Peers
from podium_controller.pools.fair_share import FairShare
from podium_controller.pools.pooled_trainers import NoTrainers, PooledTrainers
from podium_controller.pools.pools import Pool, Pools
from podium_controller.pools.projects import Projects
from podium_controller.pools.trainer_pools import TrainerPool, TrainerPools
from podium_controller.scheduling.scheduler import Scheduler
from podium_controller.settings import Settings
from podium_controller.store.jobs import NewJob
from prometheus_client import REGISTRY
from support.fakes.database import JobRow, MemoryDatabase
from support.fakes.jobs import MemoryJobStore
from support.fakes.leases import MemoryLeases
from support.fakes.ledger import MemoryLedger
from support.fakes.peers import BASE_MODEL, FakeEnvironments, FakeInference, FakeJudge, FakeRollout
from support.fakes.registry import FakeRegistry
from support.fakes.trainer import FakeTrainer, FakeTrainers
from support.fakes.wire import Wire

STEPS = 2
JOBS = ("lab-1", "lab-2", "shop-1", "shop-2")
SETTINGS = Settings(poll_seconds=0.005, lease_seconds=60.0, max_active_jobs=8)


class Held(Wire):
    """Stops calls at a method, and loses a peer when a test says so."""

    def __init__(self) -> None:
        self.gates: dict[str, asyncio.Event] = {}
        self.waiting = 0
        self.away: set[str] = set()

    async def call(self, peer: str, method: str, handle: Callable[[], Any]) -> Any:
        gate = self.gates.get(method)
        if gate is not None:
            self.waiting += 1
            await gate.wait()
            self.waiting -= 1
        await asyncio.sleep(0)
        if peer in self.away:
            raise UnavailableError(f"{peer} cannot be reached", metadata={"peer": peer})
        return await super().call(peer, method, handle)


class World:
    """Four pools of merged weights, one shared trainer, and one that is nobody's."""

    def __init__(self, rooms: int = 4) -> None:
        self.wire = Held()
        self.database = MemoryDatabase()
        self.jobs = MemoryJobStore(self.database, Notifications())
        self.registry = FakeRegistry(self.wire)
        self.inference = {f"p{i}": FakeInference(self.registry, self.wire) for i in range(4)}
        self.rollout = FakeRollout(self.inference, self.wire)
        self.shared = FakeTrainer(self.registry, self.wire)
        self.shared.rooms = rooms
        self.own = FakeTrainer(self.registry)
        self.trainers: FakeTrainers | NoTrainers = FakeTrainers(self.own)
        self.trainer_pools = [TrainerPool("shared", self.shared, BASE_MODEL, gpus=2)]
        self.clock: Callable[[], float] = time.monotonic
        """By which it is remembered when a trainer pool answered."""

    @asynccontextmanager
    async def controller(self) -> AsyncIterator[None]:
        """One that runs, until it stops without a word."""
        projects, notifications = Projects(), Notifications()
        pools = TrainerPools(self.trainer_pools, self.clock)
        scheduler = Scheduler(
            Peers(
                self.rollout,
                FakeJudge(self.wire),
                PooledTrainers(self.trainers, pools),  # type: ignore[arg-type]
                FakeEnvironments(),  # type: ignore[arg-type]
                self.registry,
            ),
            Pools([Pool(n, i, FairShare(n, 99, projects)) for n, i in self.inference.items()]),
            projects,
            MemoryLeases(self.database),
            lambda epoch: MemoryLedger(self.database, notifications, epoch),
            SETTINGS,
            pools,
        )
        running = asyncio.create_task(scheduler.run())
        try:
            yield
        finally:
            await cancel_and_wait(running)
            self.database.leases.clear()

    async def submit(self, job_id: str, **trainer: Any) -> None:
        spec = spec_pb2.JobSpec(base_model=BASE_MODEL, project=job_id.split("-")[0], seed=3)
        spec.environment.name = "double"
        spec.rollout.group_size, spec.rollout.groups_per_step = 3, 2
        spec.training.steps = STEPS
        spec.trainer.MergeFrom(spec_pb2.TrainerSpec(**trainer))
        await self.jobs.create(NewJob(job_id, complete(spec), "", "", ""))

    async def until(self, condition: Callable[[Mapping[str, JobRow]], object]) -> None:
        async with asyncio.timeout(60):
            while not condition(self.database.jobs):
                await asyncio.sleep(0.001)

    async def ended(self, *jobs: str) -> None:
        ended = {pb.JOB_STATE_SUCCEEDED, pb.JOB_STATE_FAILED}
        await self.until(lambda rows: all(rows[job].state in ended for job in jobs))
        for job in jobs:
            row = self.database.jobs[job]
            assert row.state == pb.JOB_STATE_SUCCEEDED, row.failure_message
            assert sorted(row.steps) == list(range(1, STEPS + 1))

    def hold(self, method: str) -> asyncio.Event:
        return self.wire.gates.setdefault(method, asyncio.Event())


def shown(what: str) -> float | None:
    name = f"podium_controller_trainer_pool_{what}"
    return REGISTRY.get_sample_value(name, {"pool": "shared"})
