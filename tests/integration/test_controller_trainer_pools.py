"""Trainer pools: a real controller over real gRPC, and a trainer that holds several jobs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest
from podium.core.errors import InvalidArgumentError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from support.controlled import assert_every_step_once, running_controller, small_job
from support.fleet import Fleet, fleet_of_doubles
from support.full import full
from support.processes import RegistryProcess, running_registry

STEPS = 2


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryProcess]:
    yield from running_registry()


@pytest.fixture
async def fleet(registry: RegistryProcess) -> AsyncIterator[Fleet]:
    async with fleet_of_doubles(registry) as running:
        running.inference.adapters = True
        yield running


def job(name: str, **trainer: object) -> spec_pb2.JobSpec:
    return small_job(
        STEPS,
        project=name.split("-")[-2],
        trainer=spec_pb2.TrainerSpec(**trainer),  # type: ignore[arg-type]
    )


ONE_AT_EACH = ("open", "save:begin", "save:published", "step:begin")


@pytest.mark.parametrize(
    ("where", "points"),
    [
        ("step-taken", ("step:taken",) * 4),
        # What dies meets each job somewhere else.
        ("each", ONE_AT_EACH),
        *(full(point.replace(":", "-"), (point,) * 4) for point in ONE_AT_EACH),
    ],
)
async def test_four_jobs_of_a_trainer_that_dies_end_whole(
    fleet: Fleet, where: str, points: tuple[str, ...]
) -> None:
    shared = await fleet.add_trainer_pool("shared", 4)
    names = [f"{where}-{each}" for each in ("lab-1", "lab-2", "shop-1", "shop-2")]
    awaited, killed = Counter(points), asyncio.Event()
    arrived = asyncio.Event()

    async def hold(at: str, about: str) -> None:
        # Who is held comes to no other point, so that each is a job of its own.
        if awaited[at] and not killed.is_set():
            awaited[at] -= 1
            if not awaited.total():
                arrived.set()
            await killed.wait()

    fleet.at = hold
    async with running_controller(fleet, max_active_jobs=8) as client:
        for name in names:
            await client.create(job(name), name)
        async with asyncio.timeout(120):
            await arrived.wait()
        await shared.kill()
        killed.set()
        for name in names:
            await client.until(name, lambda j: j.wait_reason == "TRAINER_LOST")
        await shared.start()
        for name in names:
            done = await client.succeeded(name)
            assert done.trainer_pool == "shared"
            await assert_every_step_once(fleet, client, name, STEPS)
    assert shared.projects == {name: name.split("-")[-2] for name in names}
    assert (shared.opened, fleet.trainer.opens) == ({}, [])


async def test_what_a_job_waits_for_and_where_it_trained_is_told(fleet: Fleet) -> None:
    shared = await fleet.add_trainer_pool("shared", 1)
    release = asyncio.Event()

    async def hold(at: str, about: str) -> None:
        if at == "step:begin":
            await release.wait()

    fleet.at = hold
    async with running_controller(fleet, max_active_jobs=8) as client:
        first, second, alone = "told-lab-1", "told-lab-2", "told-shop-1"
        await client.create(job(first), first)
        await client.until(first, lambda j: j.phase == "train")
        await client.create(job(second), second)
        await client.create(job(alone, dedicated=True), alone)
        waiting = await client.until(second, lambda j: j.wait_reason != "")
        assert (waiting.state, waiting.wait_reason) == (pb.JOB_STATE_QUEUED, "TRAINER_POOL_FULL")
        assert first in waiting.wait_message
        await client.until(alone, lambda j: j.phase == "train")
        # In a controller that begins anew, each finds its trainer.
    async with running_controller(fleet, max_active_jobs=8) as client:
        release.set()
        pools = {
            name: (await client.succeeded(name)).trainer_pool for name in (first, second, alone)
        }
    assert pools == {first: "shared", second: "shared", alone: ""}
    assert {name for name, _ in shared.taken} == {first, second}
    assert {name for name, _ in fleet.trainer.taken} == {alone}


async def test_a_pool_that_there_is_not_is_refused(fleet: Fleet) -> None:
    await fleet.add_trainer_pool("shared", 1)
    async with running_controller(fleet) as client:
        with pytest.raises(InvalidArgumentError) as raised:
            await client.create(job("refused-lab-1", pool="shard"))
    (wrong,) = raised.value.violations
    assert wrong.field == "job.spec.trainer.pool"
    assert "did you mean 'shared'?" in wrong.description
