"""Jobs at a trainer pool that is there only while they want it: peers are in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import prometheus_client
import pytest
from podium.core.errors import InvalidArgumentError, PodiumError, UnavailableError
from podium.jobs.v1 import job_service_pb2 as pb
from podium_controller.domain.ports import TrainerState
from podium_controller.domain.waits import Wait
from podium_controller.pools import pooled_trainers
from podium_controller.pools.pooled_trainers import PooledTrainer
from podium_controller.pools.trainer_pools import TrainerPool
from support.fakes.peers import BASE_MODEL
from support.fakes.trainer import FakeTrainer
from support.shared_trainers import World, shown


@pytest.fixture(autouse=True)
def asked_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooled_trainers, "_RETRY_SECONDS", 0.001)


class Clock:
    """Each look is ten seconds later, so that one that is away is asked at each."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.stands = False

    def __call__(self) -> float:
        self.now += 0.0 if self.stands else 10.0
        return self.now


def scaled() -> World:
    world = World()
    world.trainer_pools = [replace(world.trainer_pools[0], scales_to_zero=True)]
    return world


def starting(world: World, job: str) -> bool:
    return world.database.jobs[job].wait_reason == "TRAINER_POOL_STARTING"


async def test_a_job_is_counted_from_its_queue_to_its_end() -> None:
    world = scaled()
    world.clock = Clock()
    world.wire.away.add("trainer")
    gate = world.hold("step")
    await world.submit("lab-1")
    async with world.controller():
        await world.until(lambda _: starting(world, "lab-1"))
        await world.until(lambda _: shown("waiting") == 1)
        assert world.database.jobs["lab-1"].state == pb.JOB_STATE_QUEUED
        assert shown("jobs") == 0
        world.wire.away.clear()
        await world.until(lambda _: world.wire.waiting == 1)
        await world.until(lambda _: (shown("jobs"), shown("waiting")) == (1, 0))
        gate.set()
        await world.ended("lab-1")
        await world.until(lambda _: (shown("jobs"), shown("waiting")) == (0, 0))
    # Nobody leads any more: to KEDA there is no number, and no 0.
    assert (shown("jobs"), shown("waiting")) == (None, None)


async def test_what_it_said_to_an_earlier_job_is_no_answer_to_a_later_one() -> None:
    world = scaled()
    world.clock = clock = Clock()
    clock.stands = True
    await world.submit("lab-1")
    async with world.controller():
        await world.ended("lab-1")
        world.wire.away.add("trainer")
        clock.now += 3600
        clock.stands = False
        await world.submit("lab-2")
        await world.until(lambda _: starting(world, "lab-2"))
        # It never ran, and so lost no trainer.
        assert world.database.jobs["lab-2"].trainer_pool == ""
        world.wire.away.clear()
        await world.ended("lab-2")


async def test_a_trainer_that_goes_in_mid_run_is_waited_for_and_its_job_counted() -> None:
    world = scaled()
    gate = world.hold("step")
    await world.submit("lab-1")
    async with world.controller():
        await world.until(lambda _: world.wire.waiting == 1)
        world.wire.away.add("trainer")
        world.shared.forget()
        gate.set()
        await world.until(lambda _: starting(world, "lab-1"))
        assert world.database.jobs["lab-1"].state == pb.JOB_STATE_RUNNING
        assert shown("jobs") == 1
        world.wire.away.clear()
        await world.ended("lab-1")


async def test_a_controller_that_starts_shows_no_number_before_it_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = scaled()
    world.hold("step")
    await world.submit("lab-1")
    async with world.controller():
        await world.until(lambda _: world.wire.waiting == 1)
    world.wire.away.add("trainer")
    await world.submit("lab-2")
    told: list[tuple[str, float]] = []
    real = prometheus_client.Gauge.set

    def noted(gauge: prometheus_client.Gauge, value: float) -> None:
        told.append((gauge._name.removeprefix("podium_controller_trainer_pool_"), value))
        real(gauge, value)

    monkeypatch.setattr(prometheus_client.Gauge, "set", noted)
    async with world.controller():
        await world.until(lambda _: shown("waiting") is not None)
        assert {value for name, value in told if name == "jobs"} == {1}
        assert {value for name, value in told if name == "waiting"} == {1}


async def test_a_pool_that_is_gone_from_the_settings_has_no_number() -> None:
    world = scaled()
    world.clock = Clock()
    world.wire.away.add("trainer")
    await world.submit("lab-1", pool="shared")
    async with world.controller():
        await world.until(lambda _: shown("waiting") == 1)
    world.trainer_pools.clear()
    async with world.controller():
        await world.until(lambda rows: rows["lab-1"].wait_reason == "NO_TRAINER")
        assert (shown("jobs"), shown("waiting")) == (None, None)


class Telling(FakeTrainer):
    """One that says what a test tells it to say of itself."""

    def __init__(self, *answers: PodiumError | None) -> None:
        self.answers = list(answers)

    async def state(self) -> TrainerState:
        if (error := self.answers.pop(0)) is not None:
            raise error
        return TrainerState("", 4, frozenset())


async def waits_of(trainer: Telling, *, scales: bool = True) -> list[Wait]:
    """What a job is told until the trainer is ready."""
    told: list[Wait] = []

    async def on_wait(wait: Wait) -> None:
        told.append(wait)

    pool = TrainerPool("a", trainer, BASE_MODEL, scales_to_zero=scales)
    async with asyncio.timeout(60):
        assert not await PooledTrainer("j", pool).ready(on_wait)
    return told


async def test_its_start_is_told_once_and_waited_for_until_it_answers() -> None:
    away, other = UnavailableError("no pod of it is ready"), UnavailableError("refused")
    trainer = Telling(*[away] * 20, other, None)
    waits = await waits_of(trainer)
    assert trainer.answers == []
    assert [wait.reason for wait in waits] == ["TRAINER_POOL_STARTING"] * 2
    assert waits[0].message == (
        "the trainer pool 'a' starts, and does not answer yet: no pod of it is ready"
    )


async def test_one_that_refuses_is_there_and_others_are_not_asked() -> None:
    assert await waits_of(Telling(InvalidArgumentError("no token"))) == []
    assert await waits_of(Telling(), scales=False) == []
