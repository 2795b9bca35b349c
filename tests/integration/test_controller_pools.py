"""Several pools: a real controller places jobs by base model, on doubles over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest
from podium.jobs.v1 import job_service_pb2 as pb
from support.controlled import assert_every_step_once, running_controller, small_job
from support.fleet import Fleet, fleet_of_doubles
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
        done = await client.succeeded("away-2")
        assert (done.wait_reason, done.wait_message) == ("", "")
        release.set()
        await client.succeeded("away-1")
