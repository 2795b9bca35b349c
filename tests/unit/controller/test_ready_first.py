"""Steps take the groups that are ready: which ones, when, and what becomes of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from podium.core.contract import complete_rollout
from podium.inference.v1.inference_service_pb2 import EngineLoad
from podium.jobs.v1 import job_service_pb2 as pb
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain import metrics
from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.identifiers import WAITING_ROOM
from podium_controller.domain.ports import CONSUMED
from podium_controller.training import useless
from podium_controller.training.collector import StepBatch
from podium_controller.training.concurrency import Concurrency
from podium_controller.training.draws import Draws
from podium_controller.training.group_sources import DrawnGroups
from podium_controller.training.judging import Judging
from podium_controller.training.mixture import Mixture
from podium_controller.training.ready_first import ReadyFirst
from podium_controller.training.scenario_order import ScenarioOrder
from support.fakes.bench import JOB, Bench
from support.loop_clock import LoopClock

ONE = [spec_pb2.WeightedEnvironment(weight=1)]


class Held:
    """A rollout service whose groups end when a test says so."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._collect = bench.rollout.collect
        self._gates: dict[str, asyncio.Event] = {}
        self.flat: set[str] = set()
        self.begun: list[str] = []
        bench.rollout.collect = self.collect  # type: ignore[method-assign]

    async def collect(
        self, request: rollout_pb.CollectGroupRequest
    ) -> list[trajectory_pb2.Trajectory]:
        name = request.group_id.rpartition("/")[2]
        self.begun.append(name)
        version = self._bench.inference.version
        await self._gates.setdefault(name, asyncio.Event()).wait()
        found = await self._collect(request)
        for each in found:
            if name in self.flat:
                each.environment_reward = 0.5
            for history in each.histories:
                history.tokens.spans[0].weights_version = version
        return found

    async def end(self, *names: str) -> None:
        """Lets groups end, one after the other."""
        for name in names:
            self._gates.setdefault(name, asyncio.Event()).set()
            await settled()


async def settled() -> None:
    """Until nothing is ready that does not wait for a test."""
    for _ in range(50):
        await asyncio.sleep(0)


class Job:
    """A job of two groups a step, whose steps take what is ready."""

    def __init__(self, **rollout: Any) -> None:
        spec = spec_pb2.RolloutSpec(
            groups_per_step=2,
            group_size=2,
            max_concurrent_groups=rollout.pop("at_once", 8),
            max_staleness=rollout.pop("staleness", 1),
            **rollout,
        )
        self.bench = Bench(rollout=complete_rollout(spec), training={"steps": 5})
        self.held = Held(self.bench)
        self.batches: ReadyFirst | None = None

    async def begin(self, version: int = 0) -> ReadyFirst:
        """As a controller that finds the job."""
        bench = self.bench
        if bench.inference.version < 0:
            await bench.optimizer.open(None)
            await bench.serving.serve(0)
        mixture = Mixture(ONE, 7, 2)
        drawn = await bench.ledger.drawn(JOB)
        order = ScenarioOrder(await bench.rollout.scenarios(bench.spec.environment, "train"), 7)
        self.batches = ReadyFirst(
            JOB,
            bench.spec,
            DrawnGroups(JOB, bench.spec.rollout, [(bench.source, order, order)], mixture),
            Judging(
                bench.judge,
                bench.spec.reward,
                bench.recovery,
                bench.ledger,
                bench.spending,
            ),
            bench.ledger,
            bench.reporter,
            lambda step: trace.INVALID_SPAN,
            Draws.restored(mixture, drawn.state) if drawn else Draws(mixture, 2, 0),
            drawn.step if drawn else 0,
            Concurrency(JOB, bench.spec.rollout, bench.pool, bench.reporter),
        )
        await self.batches.open()
        self.batches.advance(version)
        await settled()
        return self.batches

    async def commit(self, batch: StepBatch) -> None:
        """The step of a batch, and its version at the pool."""
        step = pb.Step(number=batch.step, group_ids=[group.id for group in batch.groups])
        await self.bench.ledger.commit_step(JOB, step)
        self.bench.inference.version = batch.step
        assert self.batches is not None
        self.batches.advance(batch.step)
        await settled()

    @property
    def waiting(self) -> set[str]:
        """The groups that no step has."""
        rows = self.bench.database.jobs[JOB].groups
        return {_short(id_) for id_, row in rows.items() if row.step == WAITING_ROOM}


def _short(id_: str) -> str:
    return id_.rpartition("/")[2]


def names(batch: StepBatch) -> list[str]:
    return [_short(group.id) for group in batch.groups]


async def test_a_step_takes_what_is_ready_in_that_order_and_the_slow_come_later() -> None:
    job = Job()
    batches = await job.begin()
    assert job.held.begun == ["d0", "d1", "d2", "d3"]
    await job.held.end("d3", "d1")
    first = await batches.take(1)
    assert names(first) == ["d3", "d1"]
    assert [group.step for group in first.groups] == [1, 1]
    await job.held.end("d0", "d2")
    assert job.waiting == {"d0", "d2"}
    await job.commit(first)
    second = await batches.take(2)
    assert (names(second), second.carried, second.staleness) == (["d0", "d2"], 2, 1)
    # Nothing more is begun than steps 3 and, once 2 is served, 4 may train.
    assert job.held.begun == ["d0", "d1", "d2", "d3", "d4", "d5"]
    await batches.close()


async def test_what_a_step_took_is_what_it_trains_whatever_happens() -> None:
    job = Job()
    batches = await job.begin()
    await job.held.end("d2", "d0", "d3")
    first = await batches.take(1)
    await batches.close()
    again = await job.begin()
    await job.held.end("d1")
    repeated = await again.take(1)
    assert repeated.groups == first.groups
    assert names(repeated) == ["d2", "d0"]
    # Nothing that was stored is sampled again; what was underway is.
    assert job.held.begun.count("d1") == 2
    await job.commit(repeated)
    assert sorted(names(await again.take(2))) == ["d1", "d3"]
    rows = job.bench.database.jobs[JOB].groups.values()
    assert [row.step for row in rows if row.status == CONSUMED] == [1, 1]
    assert job.held.begun.count("d3") == 1
    await again.close()


async def test_groups_that_cannot_teach_are_replaced_within_the_bound() -> None:
    job = Job(max_attempted_groups=4, dynamic_sampling=True)
    job.held.flat = {"d0", "d1", "d2", "d5", "d6"}
    batches = await job.begin()
    await job.held.end("d0", "d1", "d3")
    assert not batches.is_ready(1)
    await job.held.end("d4")
    first = await batches.take(1)
    assert (names(first), first.replaced) == (["d0", "d1", "d3", "d4"], 2)
    await job.commit(first)
    await job.held.end("d2", "d5", "d6", "d7")
    second = await batches.take(2)
    # Four were attempted, and one of them can teach.
    assert names(second) == ["d2", "d5", "d6", "d7"]
    (told,) = [each.message for each in job.bench.events if "max_attempted_groups" in each.message]
    assert "1 of the 2" in told
    await batches.close()


async def test_without_dynamic_sampling_the_first_that_are_ready_train() -> None:
    job = Job(dynamic_sampling=False)
    job.held.flat = {"d1"}
    batches = await job.begin()
    await job.held.end("d1", "d0")
    assert names(await batches.take(1)) == ["d1", "d0"]
    await batches.close()


async def test_what_comes_too_late_is_ended_told_and_attempted_anew() -> None:
    job = Job()
    batches = await job.begin()
    for step, ready in enumerate((("d1", "d2"), ("d3", "d4")), 1):
        await job.held.end(*ready)
        await job.commit(await batches.take(step))
    # d0 was begun under version 0, and step 3 trains version 2.
    await settled()
    assert job.held.begun.count("d0") == 2
    await job.held.end("d5", "d6")
    third = await batches.take(3)
    assert (third.stale, third.staleness) == (1, 1)
    assert [each.message for each in job.bench.events if each.message.startswith("1 groups")]
    await job.commit(third)
    await job.held.end("d0")
    assert "d0" in job.waiting
    await batches.close()


async def test_no_more_is_underway_than_may_be_sampled_at_once() -> None:
    job = Job(at_once=1)
    batches = await job.begin()
    assert job.held.begun == ["d0"]
    await job.held.end("d0")
    assert job.held.begun == ["d0", "d1"]
    await batches.close()


async def test_a_queue_that_is_short_lets_more_be_underway_and_a_crash_repeats_the_step() -> None:
    job = Job(staleness=4, adaptive_concurrency=True)
    job.bench.inference.busy = lambda: [EngineLoad(places=64)]
    clock = LoopClock()
    batches = await job.begin()
    # As many as a step asks for; then one more with each look.
    assert job.held.begun == ["d0", "d1"]
    while len(job.held.begun) < 5:
        clock.advance(2.0)
        await settled()
    await job.held.end("d4", "d1")
    first = await batches.take(1)
    assert (names(first), first.counts["groups_limit"]) == (["d4", "d1"], 5)
    before = len(job.held.begun)
    await batches.close()
    assert metrics.CONCURRENT_GROUPS_LIMIT.labels(JOB)._value.get() == 5
    metrics.forget_job(JOB)
    # Whoever goes on has fewer at once, and the same step.
    job.bench.inference.busy = lambda: [EngineLoad(places=1, running=1, waiting=9)]
    again = await job.begin()
    repeated = await again.take(1)
    assert repeated.groups == first.groups
    assert "groups_limit" not in repeated.counts
    # Those that were underway come first.
    assert job.held.begun[before:] == ["d0", "d2"]
    await again.close()
    metrics.forget_job(JOB)


async def test_the_last_step_leaves_nothing_waiting() -> None:
    job = Job(staleness=4)
    job.bench.spec.training.steps = 1
    job.held.flat = {"d0"}
    batches = await job.begin()
    assert job.held.begun == ["d0", "d1"]
    await job.held.end("d0", "d1", "d2")
    first = await batches.take(1)
    assert names(first) == ["d0", "d1", "d2"]
    await job.commit(first)
    assert job.waiting == set()
    assert (await job.begin(1)).is_ready(1)


async def test_a_pool_that_stays_behind_ends_the_job() -> None:
    job = Job()
    batches = await job.begin()
    batches.advance(3)
    taking = asyncio.create_task(batches.take(4))
    for number in range(9):
        await job.held.end(f"d{number}")
    with pytest.raises(JobFailedError) as raised:
        await taking
    assert raised.value.reason == "STALENESS_EXCEEDED"
    await batches.close()


async def test_nothing_but_failures_has_three_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def at_once(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(useless.asyncio, "sleep", at_once)
    job = Job()
    job.bench.rollout.fails = lambda group_id: True
    batches = await job.begin()
    await job.held.end(*(f"d{number}" for number in range(8)))
    with pytest.raises(JobFailedError) as raised:
        await batches.take(1)
    # Others are attempted each time: what breaks may be two scenarios, and not all.
    assert set(job.held.begun) >= {"d0", "d1", "d2", "d3", "d4", "d5"}
    assert len(set(job.held.begun)) == len(job.held.begun)
    assert raised.value.reason == "ENVIRONMENT_FAILING"
    assert "the inbox is missing" in raised.value.message
    assert pauses == [useless._FIRST_PAUSE, 2 * useless._FIRST_PAUSE]
    await batches.close()


async def test_a_lost_peer_ends_the_wait_and_not_only_a_group() -> None:
    job = Job()
    batches = await job.begin()

    def broken() -> Callable[[], None]:
        raise RuntimeError("a defect")

    job.bench.before("score", broken)
    taking = asyncio.create_task(batches.take(1))
    await job.held.end("d0")
    with pytest.raises(RuntimeError, match="a defect"):
        await taking
    await batches.close()
