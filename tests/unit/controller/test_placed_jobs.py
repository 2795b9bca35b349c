"""Where jobs run when there are several pools, and what they wait for; on fakes of every port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from podium.core.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from podium.jobs.v1 import job_service_pb2 as pb
from support.controlled import small_job
from support.fleet_doubles import BASE_MODEL
from support.memory_fixtures import fleet
from support.memory_fleet import (
    MemoryClient,
    MemoryFleet,
    assert_every_step_once,
    memory_controller,
)

__all__ = ["fleet"]

OTHER = "other-model"


@pytest.fixture(autouse=True)
def rooms(fleet: MemoryFleet) -> None:
    """For many trainers."""
    fleet.trainer.rooms = 8


def holding(job_id: str, release: asyncio.Event) -> Callable[[str, str], Coroutine[Any, Any, None]]:
    """Stops a job's collection until it is released."""

    async def hold(point: str, about: str) -> None:
        if point == "collect:begin" and about.startswith(f"{job_id}/"):
            await release.wait()

    return hold


async def waiting(client: MemoryClient, job_id: str) -> pb.Job:
    """The job once it says what it waits for."""
    return await client.until(job_id, lambda job: job.wait_reason != "")


async def test_a_job_waits_for_its_merged_pool_while_one_for_another_pool_runs(
    fleet: MemoryFleet,
) -> None:
    fleet.add_pool("other", OTHER)
    release = asyncio.Event()
    fleet.at = holding("taken-1", release)
    async with memory_controller(fleet, max_active_jobs=8) as client:
        await client.create(small_job(1), "taken-1")
        await client.until("taken-1", lambda job: job.phase == "collect")
        await client.create(small_job(1), "taken-2")
        await client.create(small_job(1, base_model=OTHER), "taken-3")
        told = await waiting(client, "taken-2")
        assert told.state == pb.JOB_STATE_QUEUED
        assert told.wait_reason == "POOL_TAKEN"
        assert "'default'" in told.wait_message
        assert "taken-1" in told.wait_message
        await client.succeeded("taken-3")
        assert (await client.get("taken-2")).state == pb.JOB_STATE_QUEUED
        release.set()
        done = await client.succeeded("taken-2")
        assert (done.wait_reason, done.wait_message) == ("", "")
        assert (await client.get("taken-1")).state == pb.JOB_STATE_SUCCEEDED


async def test_jobs_share_a_pool_of_adapters_as_far_as_it_goes() -> None:
    fleet = MemoryFleet(adapters=True)
    fleet.trainer.rooms = 3
    release = asyncio.Event()

    async def hold(point: str, about: str) -> None:
        if point == "collect:begin":
            await release.wait()

    fleet.at = hold
    async with memory_controller(fleet, max_active_jobs=8, max_jobs_per_pool=2) as client:
        jobs = [(await client.create(small_job(1), f"shared-{i}")).id for i in range(3)]
        for job in jobs[:2]:
            await client.until(job, lambda job: job.phase == "collect")
        told = await waiting(client, jobs[2])
        assert (told.state, told.wait_reason) == (pb.JOB_STATE_QUEUED, "POOL_FULL")
        release.set()
        for job in jobs:
            await client.succeeded(job)
            await assert_every_step_once(fleet, client, job, 1)


async def test_the_bound_of_the_installation_is_named_too(fleet: MemoryFleet) -> None:
    release = asyncio.Event()
    fleet.at = holding("bound-0", release)
    async with memory_controller(fleet, max_active_jobs=1) as client:
        await client.create(small_job(1), "bound-0")
        await client.until("bound-0", lambda job: job.phase == "collect")
        await client.create(small_job(1), "bound-1")
        assert (await waiting(client, "bound-1")).wait_reason == "MAX_ACTIVE_JOBS"
        release.set()
        await client.succeeded("bound-1")


async def test_a_base_model_that_no_pool_serves_is_refused_with_what_they_serve(
    fleet: MemoryFleet,
) -> None:
    fleet.add_pool("other", OTHER)
    async with memory_controller(fleet) as client:
        with pytest.raises(FailedPreconditionError) as raised:
            await client.create(small_job(1, base_model="third-model"))
    error = raised.value
    assert error.reason == "BASE_MODEL_NOT_SERVED"
    assert error.message == (
        "job.spec.base_model: got 'third-model', which no pool serves; pools 'default' serves"
        f" {BASE_MODEL!r}, 'other' serves {OTHER!r}"
    )
    assert error.metadata["served"] == f"{BASE_MODEL}, {OTHER}"


async def test_a_pool_that_is_down_keeps_no_job_from_another(fleet: MemoryFleet) -> None:
    fleet.add_pool("other", OTHER)
    fleet.kill("other")
    async with memory_controller(fleet, max_active_jobs=2) as client:
        await client.succeeded((await client.create(small_job(1))).id)
        # Which model it has, nobody has heard yet.
        with pytest.raises(UnavailableError) as raised:
            await client.create(small_job(1, base_model=OTHER))
        assert raised.value.reason == "POOL_UNAVAILABLE"
        assert "'other' does not answer" in raised.value.message
        fleet.start("other")
        await client.succeeded((await client.create(small_job(1, base_model=OTHER))).id)


async def test_a_job_whose_pool_is_down_runs_as_soon_as_it_is_heard_of_again(
    fleet: MemoryFleet,
) -> None:
    fleet.add_pool("other", OTHER)
    release = asyncio.Event()
    fleet.at = holding("away-1", release)
    async with memory_controller(fleet, max_active_jobs=1) as client:
        await client.create(small_job(1), "away-1")
        await client.until("away-1", lambda job: job.phase == "collect")
        await client.create(small_job(1, base_model=OTHER), "away-2")
    fleet.kill("other")
    async with memory_controller(fleet, max_active_jobs=8) as client:
        told = await client.until("away-2", lambda job: job.wait_reason == "POOL_UNAVAILABLE")
        assert told.state == pb.JOB_STATE_QUEUED
        assert "'other' does not answer" in told.wait_message
        fleet.start("other")
        # It is asked again after so long.
        fleet.seconds += 5
        await client.succeeded("away-2")
        assert (await client.get("away-1")).state == pb.JOB_STATE_RUNNING
        release.set()
        await client.succeeded("away-1")


async def test_an_answer_that_fits_no_window_is_refused_and_a_larger_window_is_found(
    fleet: MemoryFleet,
) -> None:
    fleet.add_pool("large").window = 8192
    async with memory_controller(fleet) as client:
        spec = small_job(1)
        spec.rollout.sampling.max_tokens = 4096
        assert (await client.succeeded((await client.create(spec)).id)).pool == "large"
        spec.rollout.sampling.max_tokens = 9000
        with pytest.raises(InvalidArgumentError) as raised:
            await client.create(spec)
    (violation,) = raised.value.violations
    assert violation.field == "job.spec.rollout.sampling.max_tokens"
    assert "8192" in violation.description


@pytest.mark.parametrize("gone", [False, True])
async def test_a_job_goes_on_at_its_pool_or_where_there_is_one_left(
    fleet: MemoryFleet, gone: bool
) -> None:
    fleet.add_pool("second")
    hold = fleet.hold("step:begin", "2")
    async with memory_controller(fleet, max_active_jobs=8) as client:
        await client.create(small_job(3), "moved")
        await hold.reached()
        pool = (await client.get("moved")).pool
    hold.release()
    assert pool == "default"
    if gone:
        # As after an upgrade with other values.
        del fleet.pools["default"]
        fleet.add_pool("third", OTHER)
    async with memory_controller(fleet, max_active_jobs=8) as client:
        job = await client.succeeded("moved")
        await assert_every_step_once(fleet, client, "moved", 3)
        assert job.pool == ("second" if gone else "default")
        told = [event.message for event in await client.events("moved")]
        assert any("is gone from the settings" in text for text in told) == gone


async def test_who_competes_for_one_pool_and_trainer_runs_in_the_order_of_the_queue(
    fleet: MemoryFleet,
) -> None:
    fleet.trainer.rooms = 1
    opened: list[str] = []
    jobs: list[str] = []
    running: list[int] = []

    async def watch(point: str, about: str) -> None:
        if point == "open":
            opened.append(about)
        if point == "collect:begin":
            states = [fleet.database.jobs[job].state for job in jobs]
            running.append(states.count(pb.JOB_STATE_RUNNING))

    fleet.at = watch
    async with memory_controller(fleet) as client:
        for number in range(3):
            jobs.append((await client.create(small_job(2), f"queued-{number}")).id)
        for job in jobs:
            await client.succeeded(job)
            await assert_every_step_once(fleet, client, job, 2)
    assert opened == jobs
    assert set(running) == {1}
