"""A real scheduler and real servicers over fakes of every port: nothing leaves the process.

`MemoryFleet` and `memory_controller` stand where `support.fleet.Fleet` and
`support.controlled.running_controller` do over gRPC: the same client, the same points at which a
test may act, and the same deaths.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from podium.core.errors import UnavailableError
from podium.core.tasks import cancel_and_wait
from podium.jobs.v1 import job_service_pb2 as pb
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import trajectory_pb2
from podium_controller.api.admission import Admission
from podium_controller.api.job_servicer import JobServicer
from podium_controller.api.project_budgets import ProjectBudgets
from podium_controller.api.session_servicer import SessionServicer
from podium_controller.api.trackers import Trackers
from podium_controller.domain.notifications import Notifications
from podium_controller.domain.ports import Peers
from podium_controller.pools.fair_share import FairShare
from podium_controller.pools.pooled_trainers import PooledTrainers
from podium_controller.pools.pools import Pool, Pools
from podium_controller.pools.projects import ProjectLimits, Projects
from podium_controller.pools.trainer_pools import TrainerPool, TrainerPools
from podium_controller.scheduling.scheduler import Scheduler
from podium_controller.settings import Settings
from support.controlled import GROUPS, Client
from support.fakes.batches import MemoryBatchStore, MemoryClientStore
from support.fakes.database import MemoryDatabase
from support.fakes.jobs import MemoryJobStore
from support.fakes.leases import MemoryLeases
from support.fakes.ledger import MemoryLedger
from support.fakes.peers import (
    FakeAdapters,
    FakeEnvironments,
    FakeInference,
    FakeJudge,
    FakeRollout,
)
from support.fakes.registry import LATEST, FakeRegistry
from support.fakes.trainer import FakeTrainer, FakeTrainers, fingerprint
from support.fakes.wire import Wire
from support.fleet_doubles import BASE_MODEL
from support.hold import Hold

Points = Mapping[str, tuple[str, str, Callable[..., str]]]
"""By method: the points before and after it, empty for none, and what they are about."""

TRAINER: Points = {
    "open": ("open", "", lambda request: request.job_id),
    "step": ("step:begin", "step:taken", lambda job_id, step, groups: str(step)),
    "save": ("save:begin", "save:published", lambda request: str(request.step)),
    "close": ("close", "", lambda job_id, seconds=None: job_id),
}
INFERENCE: Points = {
    "load": ("load:begin", "load:end", lambda job_id, version, _: f"{job_id}@{version}"),
    "score": ("score", "", lambda policy, _: policy.job),
}
ROLLOUT: Points = {
    "collect": ("collect:begin", "collect:end", lambda request: request.group_id),
}
JUDGE: Points = {"score": ("judge:begin", "judge:end", lambda request: request.group.id)}


class Line(Wire):
    """The way to one peer, which may die."""

    def __init__(self, fleet: MemoryFleet, peer: str) -> None:
        self._fleet = fleet
        self._peer = peer
        self._life = 0
        self._is_up = True

    async def call(self, peer: str, method: str, handle: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        self.check(self._life)
        return await super().call(peer, method, handle)

    def reach(self, peer: str) -> None:
        line = self._fleet.lines[peer]
        line.check(line.life)

    @property
    def life(self) -> int:
        """Which of its lives it is in."""
        return self._life

    def check(self, life: int) -> None:
        """Raises UnavailableError: it is dead, or was meanwhile."""
        if not self._is_up or life != self._life:
            raise UnavailableError(f"{self._peer} cannot be reached", metadata={"peer": self._peer})

    def cut(self) -> None:
        self._is_up, self._life = False, self._life + 1

    def mend(self) -> None:
        self._is_up = True


class Watched:
    """A port of a peer: a test acts before and after its methods, and what dies there is cut."""

    def __init__(self, fleet: MemoryFleet, line: Line, port: Any, points: Points) -> None:
        self._fleet = fleet
        self._line = line
        self._port = port
        self._points = points

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if name not in self._points:
            return method
        before, after, about = self._points[name]

        async def call(*args: Any, **fields: Any) -> Any:
            life, what = self._line.life, about(*args, **fields)
            self._line.check(life)
            await self._fleet.reached(before, what)
            self._line.check(life)
            answer = await method(*args, **fields)
            if after:
                await self._fleet.reached(after, what)
                self._line.check(life)
            return answer

        return call


class WatchedRollout(Watched):
    """It knows what it was asked, and how much of it runs."""

    def __init__(self, fleet: MemoryFleet, line: Line, port: Any) -> None:
        super().__init__(fleet, line, port, ROLLOUT)
        self.requests: list[rollout_pb.CollectGroupRequest] = []
        self.running = 0
        self.most_running = 0

    async def collect(
        self, request: rollout_pb.CollectGroupRequest
    ) -> list[trajectory_pb2.Trajectory]:
        self.requests.append(request)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            collected: list[trajectory_pb2.Trajectory] = await self.__getattr__("collect")(request)
            return collected
        finally:
            self.running -= 1


class MemoryFleet:
    """The fakes of all that a controller drives, and its database."""

    def __init__(self, *, adapters: bool = False) -> None:
        """`adapters`: its pool is of adapters, and not of merged weights."""
        self.lines: dict[str, Line] = {}
        self.calls: Counter[str] = Counter()
        """By point."""
        self.at: Callable[[str, str], Awaitable[None]] = _nothing
        self.seconds = 0.0
        """What the clock is ahead by which it is remembered when a pool answered."""
        self.transactions = 0
        """How many were begun."""
        self.database = MemoryDatabase(self._in_turn)
        self.registry = FakeRegistry(self._line("registry"))
        self.pools: dict[str, FakeInference] = {}
        self.inference = self.add_pool("default", adapters=adapters)
        self.rollout = FakeRollout(self.pools, self._line("rollout"))
        self.watched_rollout = WatchedRollout(self, self.lines["rollout"], self.rollout)
        self.judge = FakeJudge(self._line("judge"))
        self.trainer = FakeTrainer(self.registry, self._line("trainer"))
        self.trainers = FakeTrainers(Watched(self, self.lines["trainer"], self.trainer, TRAINER))  # type: ignore[arg-type]
        self.trainer_pools: dict[str, FakeTrainer] = {}
        self.environments = FakeEnvironments()

    def add_pool(
        self, name: str, base_model: str = BASE_MODEL, *, adapters: bool = False
    ) -> FakeInference:
        """A further pool; before the controller is."""
        kind = FakeAdapters if adapters else FakeInference
        pool = self.pools[name] = kind(self.registry, self._line("inference", name), base_model)
        return pool

    def add_trainer_pool(self, name: str, rooms: int) -> FakeTrainer:
        """A trainer that so many jobs share; before the controller is."""
        pool = self.trainer_pools[name] = FakeTrainer(self.registry, self._line("trainer", name))
        pool.rooms = rooms
        return pool

    def _line(self, peer: str, name: str = "") -> Line:
        line = Line(self, peer)
        self.lines.setdefault(peer, line)
        if name:
            self.lines[name] = line
        return line

    async def _in_turn(self, work: Callable[[], Any]) -> Any:
        """A transaction before which others come to their turn, as before every real one."""
        self.transactions += 1
        await asyncio.sleep(0)
        return work()

    def kill(self, name: str) -> None:
        """Cuts every call to a peer, or to a pool by its name, and loses what was in memory."""
        self.lines[name].cut()
        own = {"inference": self.inference, "trainer": self.trainer}
        found = {**own, **self.pools, **self.trainer_pools}.get(name)
        if found is not None:
            found.forget()

    def start(self, name: str) -> None:
        """It is there again."""
        self.lines[name].mend()

    async def reached(self, point: str, about: str) -> None:
        self.calls[point] += 1
        await self.at(point, about)

    def hold(self, point: str, about: str = "") -> Hold:
        """Stops the first call that reaches the point."""
        hold = Hold(point, about)
        self.at = hold
        return hold

    def versions(self, job_id: str) -> list[int]:
        """What the registry has of a job."""
        return sorted(self.registry.models.get(job_id, {}))


async def _nothing(point: str, about: str) -> None:
    return None


class Direct:
    """A stub whose service is called in the process: what it raises is raised as it is."""

    def __init__(self, servicer: Any) -> None:
        self._servicer = servicer

    def __getattr__(self, method: str) -> Any:
        call = getattr(self._servicer, method)
        return lambda request, timeout=None: call(request, None)


class MemoryClient(Client):
    """`Client` of servicers in this process."""

    every = 0.001
    within = 30.0

    def __init__(self, jobs: JobServicer, sessions: SessionServicer) -> None:
        self.stub = Direct(jobs)  # type: ignore[assignment]
        self.sessions = Direct(sessions)  # type: ignore[assignment]


@asynccontextmanager
async def memory_controller(
    fleet: MemoryFleet,
    projects: Mapping[str, ProjectLimits] | None = None,
    trackers: Trackers | None = None,
    **changes: Any,
) -> AsyncIterator[MemoryClient]:
    """A controller that runs until it stops without a word; `changes` are of its settings."""
    settings = Settings(**{"poll_seconds": 0.005, "lease_seconds": 60.0, **changes})
    known = Projects(projects) if projects is not None else Projects()
    notifications = Notifications()

    def clock() -> float:
        return time.monotonic() + fleet.seconds

    trainer_pools = TrainerPools(
        [
            TrainerPool(name, Watched(fleet, fleet.lines[name], pool, TRAINER), BASE_MODEL)  # type: ignore[arg-type]
            for name, pool in fleet.trainer_pools.items()
        ],
        clock,
    )
    peers = Peers(
        fleet.watched_rollout,  # type: ignore[arg-type]
        Watched(fleet, fleet.lines["judge"], fleet.judge, JUDGE),  # type: ignore[arg-type]
        PooledTrainers(fleet.trainers, trainer_pools),  # type: ignore[arg-type]
        fleet.environments,  # type: ignore[arg-type]
        fleet.registry,
    )
    pools = Pools(
        [
            Pool(
                name,
                Watched(fleet, fleet.lines[name], pool, INFERENCE),  # type: ignore[arg-type]
                FairShare(name, settings.pool_episodes, known),
            )
            for name, pool in fleet.pools.items()
        ],
        clock,
    )
    scheduler = Scheduler(
        peers,
        pools,
        known,
        MemoryLeases(fleet.database),
        lambda epoch: MemoryLedger(fleet.database, notifications, epoch),
        settings,
        trainer_pools,
    )
    usage: Any = MemoryLedger(fleet.database, notifications, 0).usage
    jobs = JobServicer(
        MemoryJobStore(fleet.database, notifications),  # type: ignore[arg-type]
        Admission(peers, pools, known, trackers, trainer_pools),
        notifications,
        scheduler.wake,
        settings.poll_seconds,
        scheduler.episodes_running,
        usage,
        settings.gpu_hour_price,
        ProjectBudgets(known, usage),
    )
    sessions = SessionServicer(
        MemoryBatchStore(fleet.database, notifications),  # type: ignore[arg-type]
        MemoryClientStore(fleet.database, notifications),  # type: ignore[arg-type]
        scheduler.wake,
    )
    running = asyncio.create_task(scheduler.run())
    try:
        yield MemoryClient(jobs, sessions)
    finally:
        await cancel_and_wait(running)
        await pools.close()
        await trainer_pools.close()
        fleet.database.leases.clear()


async def assert_every_step_once(
    fleet: MemoryFleet, client: MemoryClient, job_id: str, steps: int
) -> None:
    """A row, a version, a set of groups and an update of the weights for each step, once each."""
    committed = await client.steps(job_id)
    assert [step.number for step in committed] == list(range(1, steps + 1))
    assert [step.version for step in committed] == list(range(1, steps + 1))
    for step in committed:
        assert list(step.group_ids) == [f"{job_id}/s{step.number}/g{i}" for i in range(GROUPS)]
    assert fleet.registry.aliases[job_id, LATEST] == steps
    stored = fleet.registry.models[job_id]
    for number in fleet.versions(job_id):
        if number:
            assert stored[number].manifest.group_ids == committed[number - 1].group_ids
    events = await client.events(job_id)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    told = [event.step for event in events if event.type == pb.EVENT_TYPE_STEP]
    assert told == list(range(1, steps + 1))
    seed = (await client.get(job_id)).spec.seed
    assert stored[steps].weights == (
        ("fresh", seed),
        *((number, _learned(fleet, job_id, number), 0) for number in range(1, steps + 1)),
    )


def _learned(fleet: MemoryFleet, job_id: str, step: int) -> tuple[object, ...]:
    rows = [
        row
        for row in fleet.database.jobs[job_id].groups.values()
        if (row.step, row.mode) == (step, "")
    ]
    rows.sort(key=lambda row: row.position)
    return tuple(fingerprint(trajectory_pb2.Group.FromString(row.body)) for row in rows)
