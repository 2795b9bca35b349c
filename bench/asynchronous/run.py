"""One job under the controller's own loop, its database and a stub engine, until it has trained."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import Any, cast

from podium.core.contract import apply_defaults, complete_rollout
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from podium_controller.domain.notifications import Notifications
from podium_controller.domain.ports import Peers
from podium_controller.domain.stop_signals import StopSignals
from podium_controller.pools.fair_share import FairShare
from podium_controller.pools.pools import Pool
from podium_controller.pools.projects import Projects
from podium_controller.store import JobStore, LeaseStore, SqlLedger
from podium_controller.store.jobs import NewJob
from podium_controller.training.judge_spending import ProjectAccounts
from podium_controller.training.loop import TrainingLoop

from bench.asynchronous.clock import StandingDatabase, VirtualLoop, standing
from bench.asynchronous.places import Places
from bench.asynchronous.stubs import Stub, Tempo

_LOOK = 0.05
"""Of an attempt's time, between two looks at how far it is."""
_JOB = "job"


@dataclass(frozen=True)
class Shape:
    """What both orders have in common."""

    staleness: int
    groups: int
    attempts: int
    at_once: int
    """Groups that are sampled at the same time."""
    places: int = 0
    """Of the engine; 0 for one for whoever comes."""
    adaptive: bool = False
    """Whether the engine's queue bounds `at_once`."""


@dataclass(frozen=True)
class Result:
    """What came of a job."""

    samples: int
    """Attempts that trained, of groups that could teach."""
    groups: int
    """Those groups."""
    steps: int
    seconds: float
    oldest: int
    """Versions between what sampled a group and the weights that it trained, at most."""
    twice: int
    """Groups that trained more than once."""
    ended: int
    """Groups that were ended before they were ready."""
    length: float
    """Mean seconds of the groups that trained."""
    drawn_length: float
    """Mean seconds of all groups that were begun."""
    staleness: float
    """Mean versions between what sampled a group and the weights that it trained."""
    waited: float
    """Mean seconds of a request in the engine's queue."""
    used: float
    """Part of the places' time that a request had one; 0 where there is one for whoever comes."""

    def rate(self, of: Shape) -> float:
        """Steps an hour, each of as many groups that can teach as a step asks for."""
        return 3600 * self.groups / of.groups / self.seconds


def specification(shape: Shape, order: spec_pb2.GroupOrder.ValueType) -> spec_pb2.JobSpec:
    """Of a job that never ends by itself."""
    spec = spec_pb2.JobSpec(base_model="stub", seed=7)
    spec.environment.name = "stub"
    spec.rollout.group_size = shape.attempts
    spec.rollout.groups_per_step = shape.groups
    spec.rollout.max_concurrent_groups = shape.at_once
    spec.rollout.max_staleness = shape.staleness
    spec.rollout.group_order = order
    spec.rollout.adaptive_concurrency = shape.adaptive
    spec.training.steps = 100_000
    apply_defaults(spec)
    complete_rollout(spec.rollout)
    return spec


def run(spec: spec_pb2.JobSpec, tempo: Tempo, samples: int, places: int = 0) -> Result:
    """Runs a job until so many attempts have trained; its first step is not timed."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_run(spec, tempo, samples, places))


async def _run(spec: spec_pb2.JobSpec, tempo: Tempo, samples: int, places: int) -> Result:
    stub = Stub(tempo, Places(places) if places else None)
    everyone = cast(Any, stub)
    projects = Projects()
    with tempfile.TemporaryDirectory() as folder:
        database = StandingDatabase(f"sqlite+aiosqlite:///{folder}/controller.db")
        async with standing():
            await database.migrate()
        notifications = Notifications()
        await JobStore(database, notifications).create(NewJob(_JOB, spec, "", "", ""))
        epoch = await LeaseStore(database).acquire("bench", 3600)
        ledger = SqlLedger(database, notifications, epoch or 0)
        await ledger.start(_JOB, "default")
        (job,) = await ledger.in_states([pb.JOB_STATE_RUNNING])
        loop = TrainingLoop(
            job,
            Peers(everyone, everyone, everyone, everyone, everyone),
            Pool("default", everyone, FairShare("default", 1_000_000, projects)),
            everyone,
            ledger,
            StopSignals(),
            projects.of("default"),
            everyone,
            ProjectAccounts(),
        )
        work = asyncio.create_task(loop.run())
        clock = asyncio.get_running_loop().time
        began, before, busy = 0.0, 0, 0.0
        while stub.samples < before + samples or not began:
            if work.done():
                work.result()
            if not began and stub.samples:
                began, before = clock(), stub.samples
                busy = stub.places.busy if stub.places else 0.0
            await asyncio.sleep(_LOOK * tempo.median)
        seconds, ended = clock() - began, stub.ended
        used = (stub.places.busy - busy) / places / seconds if stub.places else 0.0
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        async with standing():
            await database.close()
    return _result(stub, stub.samples - before, seconds, ended, used)


def _result(stub: Stub, samples: int, seconds: float, ended: int, used: float) -> Result:
    rows = [(step, *row) for step, found in stub.trained.items() for row in found]
    names = [id_ for _, id_, _, _ in rows]
    attempts = stub.samples // max(1, sum(teaches for *_, teaches in rows))
    return Result(
        samples=samples,
        groups=samples // attempts,
        steps=len(stub.trained),
        seconds=seconds,
        oldest=max(step - 1 - version for step, _, version, _ in rows),
        twice=len(names) - len(set(names)),
        ended=ended,
        length=fmean(stub.seconds[id_] for id_ in names),
        drawn_length=fmean(stub.begun),
        staleness=fmean(step - 1 - version for step, _, version, _ in rows),
        waited=fmean(stub.places.waited) if stub.places else 0.0,
        used=used,
    )
