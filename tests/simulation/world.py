"""Controllers and all that they drive, on one virtual loop."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from podium.core import backoff
from podium_controller.domain import job_states, timestamps
from podium_controller.domain.notifications import Notifications
from podium_controller.domain.ports import Peers
from podium_controller.pools import pools
from podium_controller.pools.fair_share import FairShare
from podium_controller.pools.pools import Pool, Pools
from podium_controller.pools.projects import Projects
from podium_controller.scheduling import janitor, scheduler
from podium_controller.scheduling.scheduler import Scheduler
from podium_controller.settings import Settings
from podium_controller.store.jobs import NewJob
from podium_controller.training import recovery, reporter
from simulation.loop import Process, VirtualLoop, VirtualTime
from simulation.network import Network
from simulation.scenario import JOB, Shape, drawn_load, specification
from support.fakes import ledger as fake_ledger
from support.fakes.database import JobRow, MemoryDatabase
from support.fakes.jobs import MemoryJobStore
from support.fakes.leases import MemoryLeases
from support.fakes.ledger import MemoryLedger
from support.fakes.peers import FakeEnvironments, FakeInference, FakeJudge, FakeRollout
from support.fakes.registry import FakeRegistry
from support.fakes.trainer import FakeTrainer, FakeTrainers

_POOL = "default"
_SETTINGS = Settings(poll_seconds=5.0, lease_seconds=10.0, close_seconds=5.0)
_CRAMPED = _SETTINGS.model_copy(update={"trajectory_store_max_bytes": 1})
_READ_CLOCKS = (pools, recovery, reporter, scheduler, timestamps, fake_ledger)


# Neither shows anything to Prometheus, which nobody reads here and which is most of their work.
class QuietScheduler(Scheduler):
    def _show(self, *_: object) -> None:
        pass


class QuietFairShare(FairShare):
    def _show(self, *_: object) -> None:
        pass


class Controller:
    """One controller: a process that can die, freeze, and lose sight of the database."""

    def __init__(self, world: World, name: str) -> None:
        self.process = Process(name)
        self._world = world
        notifications = Notifications()
        projects = Projects()
        self.scheduler = QuietScheduler(
            world.peers,
            Pools(
                [
                    Pool(
                        _POOL,
                        world.inference,
                        QuietFairShare(_POOL, 256, projects, world.loop.time),
                    )
                ],
                clock=world.loop.time,
            ),
            projects,
            world.leases,
            lambda epoch: world.ledger(world.database, notifications, epoch),
            _CRAMPED if world.shape.cramped else _SETTINGS,
        )
        self.root = world.loop.spawn(self.process, self.scheduler.run())
        # Its process ends with it, whatever it has left running.
        self.root.add_done_callback(lambda _: world.loop.kill(self.process))

    def stop(self) -> None:
        """Ends as at SIGTERM: it gives the lease back."""
        self._world.loop.thaw(self.process)
        self.root.cancel()


class World:
    """A job, its controllers, their database and peers."""

    ledger = MemoryLedger
    """What controllers write through; a test that plants a fault has another."""

    befalls: tuple[Callable[[World, random.Random], None], ...] = ()
    """What may befall it; all that there is when nothing is named."""

    def __init__(self, shape: Shape, seed: int, *, disturbed: bool) -> None:
        self.shape = shape
        self.disturbed = disturbed
        self.loop = VirtualLoop(seed, shuffled=disturbed)
        self.time = VirtualTime(self.loop)
        self.network = Network(self.loop, seed, jitter=1.0 if disturbed else 0.0)
        rows = MemoryDatabase(clock=self.time.time)
        self._api = MemoryJobStore(rows, Notifications())
        self.database = rows.through(self.network.transact)
        self.leases = MemoryLeases(self.database)
        self.registry = FakeRegistry(self.network)
        self.inference = FakeInference(self.registry, self.network)
        queue = random.Random(f"{seed}/load")
        self.inference.busy = lambda: drawn_load(queue)
        self.trainer = FakeTrainer(self.registry, self.network)
        self.trainer.noisy = shape.noisy
        self.rollout = FakeRollout({_POOL: self.inference}, self.network)
        self.rollout.is_pure = shape.pure
        self.rollout.flat_share, self.rollout.slow_share = shape.flat, shape.slow
        if shape.alike:
            self.rollout.luck = 0.25
        if shape.failing:
            self.rollout.fails = _fails
        if shape.refusing:
            self.rollout.refused = lambda scenario_id: scenario_id == "train-1"
        self.judge = FakeJudge(self.network)
        self.peers = Peers(
            self.rollout,
            self.judge,
            FakeTrainers(self.trainer),  # type: ignore[arg-type]
            FakeEnvironments(),  # type: ignore[arg-type]
            self.registry,
        )
        self.controllers: list[Controller] = []
        self.is_over = False
        self.rest_at = 0.0
        """When nothing that befell it can do harm any more."""
        self.may_hold = False
        """Whether trainer and pool may be left with the job: whoever needs them takes them back."""
        self.trace: list[str] = []
        """What befell it, for people."""

    @property
    def job(self) -> JobRow:
        return self.database.jobs[JOB]

    def start_controller(self) -> None:
        """One more, unless all is over."""
        if not self.is_over:
            self.controllers.append(Controller(self, f"c{len(self.controllers) + 1}"))

    def awake(self) -> list[Controller]:
        """Those that run."""
        return [
            each
            for each in self.controllers
            if each.process.alive and not each.process.frozen and not each.root.done()
        ]

    def is_at_rest(self) -> bool:
        """Whether the job has ended, and nothing is underway that could do harm."""
        job = self.database.jobs[JOB]
        return job.state in job_states.ENDED and self.loop.time() >= self.rest_at

    def unrest(self, seconds: float) -> None:
        """What befalls it now may do harm for so long."""
        self.rest_at = max(self.rest_at, self.loop.time() + seconds)

    def say(self, text: str) -> None:
        """Notes what befalls it."""
        self.trace.append(f"{self.loop.time():8.2f} {self.loop.ran:5d} {text}")

    def is_ended(self) -> bool:
        """Whether the job is."""
        job = self.database.jobs.get(JOB)
        return job is not None and job.state in job_states.ENDED

    def submit(self) -> None:
        """Queues the job."""
        _at_once(self._api.create(NewJob(JOB, specification(self.shape), "", "", "")))

    def ask(self, after: Callable[[job_states.State], job_states.State]) -> None:
        """Pauses or resumes the job, unless it has ended."""
        if not self.is_ended():
            _at_once(self._api.request(JOB, after))
            for controller in self.awake():
                controller.scheduler.wake()


def _fails(group_id: str) -> bool:
    """The second group of every step, or one of six that are drawn for none."""
    name = group_id.rpartition("/")[2]
    return (name == "g1" and "/s" in group_id) or (name[0] == "d" and int(name[1:]) % 6 == 1)


def _at_once(work: Coroutine[Any, Any, object]) -> None:
    """Runs what waits for nothing."""
    with contextlib.suppress(StopIteration):
        work.send(None)
        raise AssertionError("it waits")


@contextlib.contextmanager
def clocks_of(world: World, seed: int) -> Iterator[None]:
    """The controller's modules read the world's clock, and draw its random numbers."""
    before = [(each, each.time) for each in _READ_CLOCKS]
    drew = backoff.random
    paces = janitor._LOOK_SECONDS, janitor._GROUPS_AT_ONCE
    try:
        if world.shape.cramped:
            # So often, and in such small parts, that what befalls a job befalls it in between.
            janitor._LOOK_SECONDS, janitor._GROUPS_AT_ONCE = 1.0, 1
        for each in _READ_CLOCKS:
            each.time = world.time  # type: ignore[assignment]
        backoff.random = random.Random(seed)  # type: ignore[assignment]
        yield
    finally:
        for each, clock in before:
            each.time = clock
        backoff.random = drew
        janitor._LOOK_SECONDS, janitor._GROUPS_AT_ONCE = paces
