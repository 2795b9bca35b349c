"""Jobs that share a trainer, from the queue to their end: a scheduler over peers in memory."""

from __future__ import annotations

import asyncio

import pytest
from podium.jobs.v1 import job_service_pb2 as pb
from podium.trainer.v1 import trainer_service_pb2 as trainer_pb
from podium_controller.pools.pooled_trainers import NoTrainers
from podium_controller.pools.trainer_pools import TrainerPool
from support.fakes.peers import BASE_MODEL
from support.fakes.trainer import FakeTrainer
from support.shared_trainers import JOBS, STEPS, World, shown


async def test_four_jobs_of_two_projects_train_at_once_and_end_whole() -> None:
    world = World()
    together = world.hold("step")
    for job in JOBS:
        await world.submit(job)
    async with world.controller():
        await world.until(lambda _: world.wire.waiting == len(JOBS))
        assert set(world.shared._sessions) == set(JOBS)
        assert [shown("jobs"), shown("places")] == [4, 4]
        together.set()
        await world.ended(*JOBS)
    # Nobody leads any more.
    assert shown("jobs") is None
    assert {row.trainer_pool for row in world.database.jobs.values()} == {"shared"}
    assert sorted(world.shared.taken) == [(job, n) for job in JOBS for n in range(1, STEPS + 1)]
    assert world.shared.projects == {job: job.split("-")[0] for job in JOBS}
    # Each has given its place back, and the others' stayed until then.
    assert (world.shared._sessions, world.own.taken) == ({}, [])


async def test_of_four_jobs_two_wait_for_the_other_two() -> None:
    world = World(rooms=2)
    first = world.hold("step")
    for job in JOBS:
        await world.submit(job)
    async with world.controller():
        await world.until(lambda rows: all(rows[job].wait_reason for job in JOBS[2:]))
        for job in JOBS[2:]:
            row = world.database.jobs[job]
            assert (row.state, row.wait_reason) == (pb.JOB_STATE_QUEUED, "TRAINER_POOL_FULL")
            assert "2 jobs train at the trainer pool 'shared'" in row.wait_message
            assert "lab-1, lab-2" in row.wait_message
        first.set()
        await world.ended(*JOBS)
    assert {world.database.jobs[job].trainer_pool for job in JOBS} == {"shared"}


async def test_one_that_wants_its_own_trainer_has_it_beside_the_shared_one() -> None:
    world = World(rooms=1)
    both = world.hold("collect")
    await world.submit("lab-1")
    await world.submit("lab-2", dedicated=True)
    async with world.controller():
        await world.until(lambda _: (world.shared.job, world.own.job) == ("lab-1", "lab-2"))
        both.set()
        await world.ended("lab-1", "lab-2")
    assert [world.database.jobs[j].trainer_pool for j in ("lab-1", "lab-2")] == ["shared", ""]
    assert {job for job, _ in world.own.taken} == {"lab-2"}


async def test_jobs_wait_for_a_pool_that_is_away_and_run_when_it_is_back() -> None:
    world = World()
    world.wire.away.add("trainer")
    await world.submit("lab-1")
    async with world.controller():
        await world.until(lambda rows: rows["lab-1"].wait_reason == "TRAINER_POOL_UNAVAILABLE")
        row = world.database.jobs["lab-1"]
        assert row.state == pb.JOB_STATE_QUEUED
        assert "'shared' does not answer: trainer cannot be reached" in row.wait_message
    world.wire.away.clear()
    async with world.controller():
        await world.ended("lab-1")


@pytest.mark.parametrize("method", ["open", "collect", "step", "save"])
async def test_a_trainer_that_dies_costs_its_jobs_nothing_but_time(method: str) -> None:
    world, lone = World(), World()
    for job in JOBS:
        await lone.submit(job, dedicated=True)
        async with lone.controller():
            await lone.ended(job)
    gate = world.hold(method)
    for job in JOBS:
        await world.submit(job)
    async with world.controller():
        await world.until(lambda _: world.wire.waiting >= len(JOBS))
        world.wire.away.add("trainer")
        world.shared.forget()
        gate.set()
        lost = {"TRAINER_LOST"}
        await world.until(lambda rows: {rows[job].wait_reason for job in JOBS} == lost)
        world.wire.away.clear()
        await world.ended(*JOBS)
    for job in JOBS:
        mine = list(world.registry.models[job].values())
        alone = list(lone.registry.models[job].values())
        assert [each.weights for each in mine] == [each.weights for each in alone]


async def test_a_controller_that_restarts_finds_the_same_trainer() -> None:
    world = World()
    second = FakeTrainer(world.registry, world.wire)
    second.rooms = 4
    world.trainer_pools.append(TrainerPool("second", second, BASE_MODEL))
    gate = world.hold("step")
    for job in JOBS:
        await world.submit(job)
    async with world.controller():
        await world.until(lambda _: world.wire.waiting == len(JOBS))
    placed = {job: world.database.jobs[job].trainer_pool for job in JOBS}
    assert sorted(placed.values()) == ["second", "second", "shared", "shared"]
    # In another order the emptiest would be another one.
    world.trainer_pools.reverse()
    gate.set()
    async with world.controller():
        await world.ended(*JOBS)
    assert {job: world.database.jobs[job].trainer_pool for job in JOBS} == placed
    assert {job for job, _ in second.taken} == {j for j, pool in placed.items() if pool == "second"}


@pytest.mark.parametrize("others", ["own trainers", "another pool"])
async def test_a_job_whose_trainer_pool_is_gone_is_placed_anew(others: str) -> None:
    world = World()
    gate = world.hold("step")
    await world.submit("lab-1")
    async with world.controller():
        await world.until(lambda _: world.wire.waiting == 1)
    world.trainer_pools.clear()
    if others == "another pool":
        world.trainer_pools.append(TrainerPool("new", world.shared, BASE_MODEL))
    gate.set()
    async with world.controller():
        await world.ended("lab-1")
    row = world.database.jobs["lab-1"]
    assert row.trainer_pool == ("new" if others == "another pool" else "")
    told = [each.message for each in row.events if "placed anew" in each.message]
    assert told == ["the trainer pool 'shared' is gone from the settings; the job is placed anew"]


async def test_where_there_are_pools_alone_a_job_with_its_own_trainer_is_placed_anew() -> None:
    world = World()
    gate = world.hold("collect")
    world.trainer_pools.clear()
    await world.submit("lab-1")
    async with world.controller():
        await world.until(lambda _: world.wire.waiting and world.own.job == "lab-1")
    world.trainers = NoTrainers()
    world.trainer_pools.append(TrainerPool("shared", world.shared, BASE_MODEL))
    gate.set()
    async with world.controller():
        await world.ended("lab-1")
    assert world.database.jobs["lab-1"].trainer_pool == "shared"


async def test_a_place_that_could_not_be_given_back_is_taken_back() -> None:
    world = World(rooms=1)
    await world.submit("lab-1")
    async with world.controller():
        await world.ended("lab-1")
    # As if its Close had been lost.
    await world.shared.open(trainer_pb.OpenRequest(job_id="lab-1", base_model=BASE_MODEL))
    assert world.shared.job == "lab-1"
    await world.submit("lab-2")
    async with world.controller():
        await world.ended("lab-2")


async def test_what_a_job_uses_of_the_trainer_is_its_part_of_the_calls() -> None:
    world = World()
    for job in JOBS:
        await world.submit(job)
    began = asyncio.get_running_loop().time()
    async with world.controller():
        await world.ended(*JOBS)
    took = asyncio.get_running_loop().time() - began
    used = [sum(u.trainer_seconds for u in world.database.jobs[j].used.values()) for j in JOBS]
    gpus = [sum(u.trainer_gpu_seconds for u in world.database.jobs[j].used.values()) for j in JOBS]
    assert all(each > 0 for each in used)
    assert sum(used) <= took
    assert gpus == pytest.approx([2 * each for each in used])
