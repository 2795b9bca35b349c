"""One component of the training loop at a time, over peers and a ledger in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from podium.core.errors import DataLossError
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain.notifications import Notifications
from podium_controller.domain.ports import JUDGED, GroupKey, Peers
from podium_controller.domain.stop_signals import StopSignals
from podium_controller.pools.fair_share import FairShare
from podium_controller.pools.pools import Pool, Pools
from podium_controller.pools.projects import Projects
from podium_controller.store.jobs import NewJob
from podium_controller.training.aliases import Aliases
from podium_controller.training.episode_source import EpisodeSource
from podium_controller.training.judge_spending import JudgeSpending
from podium_controller.training.recovery import Recovery
from podium_controller.training.reporter import Reporter
from podium_controller.training.serving import Serving
from podium_controller.training.step_runner import StepRunner
from support.fakes.database import EventRow, Lease, MemoryDatabase
from support.fakes.jobs import MemoryJobStore
from support.fakes.leases import CONTROLLER
from support.fakes.ledger import MemoryLedger
from support.fakes.peers import (
    BASE_MODEL,
    FakeEnvironments,
    FakeInference,
    FakeJudge,
    FakeRollout,
)
from support.fakes.registry import FakeRegistry
from support.fakes.trainer import FakeTrainer, FakeTrainers
from support.fakes.wire import Wire

JOB = "job"


class Bench(Wire):
    """The components of one job, and the wire on which a test may act."""

    def __init__(self, **fields: Any) -> None:
        """`fields` are of the job's specification."""
        self._before: dict[str, list[Callable[[], Any]]] = {}
        self.calls: list[str] = []
        """Methods of peers, in order."""
        self.spec = spec_pb2.JobSpec(
            base_model=BASE_MODEL, seed=7, recovery_timeout_seconds=60, **fields
        )
        self.database = MemoryDatabase()
        self.database.leases[CONTROLLER] = Lease("test", 1, float("inf"))
        self.notifications = Notifications()
        self.jobs = MemoryJobStore(self.database, self.notifications)
        self.ledger = MemoryLedger(self.database, self.notifications, 1)
        self.jobs._create(NewJob(JOB, self.spec, "", "", ""))
        self.registry = FakeRegistry(self)
        self.inference = FakeInference(self.registry, self)
        self.trainer = FakeTrainer(self.registry, self)
        self.rollout = FakeRollout({"default": self.inference}, self)
        self.judge = FakeJudge(self)
        self.environments = FakeEnvironments()
        self.trainers = FakeTrainers(self.trainer)
        self.projects = Projects()
        self.pool = Pool("default", self.inference, FairShare("default", 256, self.projects))
        self.pools = Pools([self.pool])
        self.peers = Peers(
            self.rollout, self.judge, self.trainers, self.environments, self.registry
        )
        self.control = StopSignals()
        self.reporter = Reporter(JOB, self.ledger)
        self.recovery = Recovery(self.reporter, self.control, 60)
        self.spending = JudgeSpending(
            JOB, self.spec.budget, self.ledger, "default", self.projects.of("default")
        )
        self.optimizer = StepRunner(
            JOB,
            self.spec,
            self.trainer,
            self.registry,
            self.ledger,
            self.recovery,
            self.reporter,
        )
        self.serving = Serving(JOB, self.inference, self.ledger, self.recovery)
        self.aliases = Aliases(JOB, self.spec, self.registry, self.recovery)
        self.source = EpisodeSource(
            rollout=self.rollout,
            pool=self.pool,
            project="default",
            reporter=self.reporter,
            serving=self.serving,
            recovery=self.recovery,
            environment=self.spec.environment,
            seed=self.spec.seed,
            episode=self.spec.rollout.episode,
        )

    async def call(self, peer: str, method: str, handle: Callable[[], Any]) -> Any:
        """See `Wire`."""
        self.calls.append(method)
        if self._before.get(method):
            self._before[method].pop(0)()
        return await super().call(peer, method, handle)

    def before(self, method: str, *acts: Callable[[], Any]) -> None:
        """Acts before the next calls of a method, one each."""
        self._before.setdefault(method, []).extend(acts)

    @property
    def events(self) -> list[EventRow]:
        """What the job's people are told."""
        return self.database.jobs[JOB].events

    async def store_groups(self, step: int, groups: Sequence[trajectory_pb2.Group]) -> None:
        """Judged ones, of a step."""
        for position, group in enumerate(groups):
            await self.ledger.save_group(GroupKey(JOB, step, position), JUDGED, group)

    def damage(self, model: str, version: int) -> DataLossError:
        """What reading a damaged version raises."""
        return DataLossError(f"{model}@{version} is damaged", reason="BLOB_DAMAGED")
