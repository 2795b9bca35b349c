"""Several pools: a real controller places jobs by base model, on doubles over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest
from podium.core.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from support.controlled import Client, assert_every_step_once, running_controller, small_job
from support.fleet import Fleet, fleet_of_doubles
from support.fleet_doubles import BASE_MODEL
from support.full import full
from support.processes import RegistryProcess, running_registry

OTHER = "other-model"


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryProcess]:
    yield from running_registry()


@pytest.fixture
async def fleet(registry: RegistryProcess) -> AsyncIterator[Fleet]:
    async with fleet_of_doubles(registry) as running:
        running.trainer.rooms = 8
        yield running


def holding(job_id: str, release: asyncio.Event) -> Callable[[str, str], Coroutine[Any, Any, None]]:
    """Stops a job's collection until it is released."""

    async def hold(point: str, about: str) -> None:
        if point == "collect:begin" and about.startswith(f"{job_id}/"):
            await release.wait()

    return hold


async def created(client: Client, spec: spec_pb2.JobSpec) -> str:
    """A job's id, as soon as the controller reaches its pool again."""
    async with asyncio.timeout(60):
        while True:
            try:
                return (await client.create(spec)).id
            except UnavailableError:
                await asyncio.sleep(0.2)


async def test_each_job_runs_at_the_pool_of_its_base_model(fleet: Fleet) -> None:
    other = await fleet.add_pool("other", OTHER)
    async with running_controller(fleet, max_active_jobs=2) as client:
        first = await client.create(small_job(2), "pools-first")
        second = await client.create(small_job(2, base_model=OTHER), "pools-second")
        for job, pool in ((first, "default"), (second, "other")):
            assert (await client.succeeded(job.id)).pool == pool
            await assert_every_step_once(fleet, client, job.id, 2)
    asked = {(r.job_id, r.pool) for r in fleet.rollout.requests}
    assert asked == {(first.id, "default"), (second.id, "other")}
    assert fleet.inference.loads == [(first.id, version) for version in range(3)]
    assert other.loads == [(second.id, version) for version in range(3)]


async def test_a_job_waits_for_its_merged_pool_while_one_for_another_pool_runs(
    fleet: Fleet,
) -> None:
    await fleet.add_pool("other", OTHER)
    release = asyncio.Event()
    fleet.at = holding("taken-1", release)
    async with running_controller(fleet, max_active_jobs=8) as client:
        await client.create(small_job(1), "taken-1")
        await client.until("taken-1", lambda j: j.phase == "collect")
        await client.create(small_job(1), "taken-2")
        await client.create(small_job(1, base_model=OTHER), "taken-3")
        waiting = await client.until("taken-2", lambda j: j.wait_reason != "")
        assert waiting.state == pb.JOB_STATE_QUEUED
        assert waiting.wait_reason == "POOL_TAKEN"
        assert "'default'" in waiting.wait_message
        assert "taken-1" in waiting.wait_message
        await client.succeeded("taken-3")
        assert (await client.get("taken-2")).state == pb.JOB_STATE_QUEUED
        release.set()
        done = await client.succeeded("taken-2")
        assert (done.wait_reason, done.wait_message) == ("", "")
        assert (await client.get("taken-1")).state == pb.JOB_STATE_SUCCEEDED


async def test_jobs_share_a_pool_of_adapters_as_far_as_it_goes(fleet: Fleet) -> None:
    fleet.inference.adapters = True
    release = asyncio.Event()

    async def hold(point: str, about: str) -> None:
        if point == "collect:begin":
            await release.wait()

    fleet.at = hold
    async with running_controller(fleet, max_active_jobs=8, max_jobs_per_pool=2) as client:
        jobs = [(await client.create(small_job(1), f"shared-{i}")).id for i in range(3)]
        for job in jobs[:2]:
            await client.until(job, lambda j: j.phase == "collect")
        waiting = await client.until(jobs[2], lambda j: j.wait_reason != "")
        assert (waiting.state, waiting.wait_reason) == (pb.JOB_STATE_QUEUED, "POOL_FULL")
        release.set()
        for job in jobs:
            await client.succeeded(job)
            await assert_every_step_once(fleet, client, job, 1)


@pytest.mark.full
async def test_the_bound_of_the_installation_is_named_too(fleet: Fleet) -> None:
    release = asyncio.Event()
    fleet.at = holding("bound-0", release)
    async with running_controller(fleet, max_active_jobs=1) as client:
        await client.create(small_job(1), "bound-0")
        await client.until("bound-0", lambda j: j.phase == "collect")
        await client.create(small_job(1), "bound-1")
        waiting = await client.until("bound-1", lambda j: j.wait_reason != "")
        assert waiting.wait_reason == "MAX_ACTIVE_JOBS"
        release.set()
        await client.succeeded("bound-1")


async def test_a_base_model_that_no_pool_serves_is_refused_with_what_they_serve(
    fleet: Fleet,
) -> None:
    await fleet.add_pool("other", OTHER)
    async with running_controller(fleet) as client:
        with pytest.raises(FailedPreconditionError) as raised:
            await client.create(small_job(1, base_model="third-model"))
    error = raised.value
    assert error.reason == "BASE_MODEL_NOT_SERVED"
    assert error.message == (
        "job.spec.base_model: got 'third-model', which no pool serves; pools 'default' serves"
        f" {BASE_MODEL!r}, 'other' serves {OTHER!r}"
    )
    assert error.metadata["served"] == f"{BASE_MODEL}, {OTHER}"


@pytest.mark.long
async def test_a_pool_that_is_down_keeps_no_job_from_another(fleet: Fleet) -> None:
    other = await fleet.add_pool("other", OTHER)
    await other.kill()
    async with running_controller(fleet, max_active_jobs=2) as client:
        await client.succeeded((await client.create(small_job(1))).id)
        # Which model it has, nobody has heard yet.
        with pytest.raises(UnavailableError) as raised:
            await client.create(small_job(1, base_model=OTHER))
        assert raised.value.reason == "POOL_UNAVAILABLE"
        assert "'other' does not answer" in raised.value.message
        await other.start()
        await client.succeeded(await created(client, small_job(1, base_model=OTHER)))


async def test_a_job_for_a_pool_that_is_away_waits_in_line_without_a_trainer(
    fleet: Fleet,
) -> None:
    other = await fleet.add_pool("other", OTHER)
    release = asyncio.Event()
    fleet.at = holding("away-1", release)
    async with running_controller(fleet, max_active_jobs=1) as client:
        await client.create(small_job(1), "away-1")
        await client.until("away-1", lambda j: j.phase == "collect")
        await client.create(small_job(1, base_model=OTHER), "away-2")
    await other.kill()
    async with running_controller(fleet, max_active_jobs=8) as client:
        waiting = await client.until("away-2", lambda j: j.wait_reason == "POOL_UNAVAILABLE")
        assert waiting.state == pb.JOB_STATE_QUEUED
        assert "'other' does not answer" in waiting.wait_message
        await other.start()
        await client.succeeded("away-2")
        release.set()
        await client.succeeded("away-1")


@pytest.mark.long
async def test_an_answer_that_fits_no_window_is_refused_and_a_larger_window_is_found(
    fleet: Fleet,
) -> None:
    large = await fleet.add_pool("large")
    large.window = 8192
    async with running_controller(fleet) as client:
        spec = small_job(1)
        spec.rollout.sampling.max_tokens = 4096
        assert (await client.succeeded((await client.create(spec)).id)).pool == "large"
        spec.rollout.sampling.max_tokens = 9000
        with pytest.raises(InvalidArgumentError) as raised:
            await client.create(spec)
    (violation,) = raised.value.violations
    assert violation.field == "job.spec.rollout.sampling.max_tokens"
    assert "8192" in violation.description


@pytest.mark.parametrize("gone", [full(False), True])
async def test_a_job_goes_on_at_its_pool_or_where_there_is_one_left(
    fleet: Fleet, gone: bool
) -> None:
    await fleet.add_pool("second")
    name = f"moved-{gone}".lower()
    hold = fleet.hold("step:begin", "2")
    async with running_controller(fleet, max_active_jobs=8) as client:
        await client.create(small_job(3), name)
        await hold.reached()
        pool = (await client.get(name)).pool
    hold.release()
    assert pool == "default"
    if gone:
        # As after an upgrade with other values.
        # A server that still ran when it is collected would stop pytest's own end.
        await fleet.pools.pop("default").kill()
        await fleet.add_pool("third", OTHER)
    async with running_controller(fleet, max_active_jobs=8) as client:
        job = await client.succeeded(name)
        await assert_every_step_once(fleet, client, name, 3)
        assert job.pool == ("second" if gone else "default")
        told = [e.message for e in await client.events(name)]
        assert any("is gone from the settings" in text for text in told) == gone
