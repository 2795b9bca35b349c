"""Trainer pools: a real controller over real gRPC, and a trainer that holds several jobs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest
from podium.core.errors import InvalidArgumentError
from podium.types.v1 import spec_pb2
from support.controlled import assert_every_step_once, running_controller, small_job
from support.fleet import Fleet, fleet_of_doubles
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


async def test_four_jobs_of_a_trainer_that_dies_end_whole(fleet: Fleet) -> None:
    """What dies meets each job somewhere else."""
    shared = await fleet.add_trainer_pool("shared", 4)
    names = ["lab-1", "lab-2", "shop-1", "shop-2"]
    awaited, killed = Counter(ONE_AT_EACH), asyncio.Event()
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


async def test_a_pool_that_there_is_not_is_refused(fleet: Fleet) -> None:
    await fleet.add_trainer_pool("shared", 1)
    async with running_controller(fleet) as client:
        with pytest.raises(InvalidArgumentError) as raised:
            await client.create(job("refused-lab-1", pool="shard"))
    (wrong,) = raised.value.violations
    assert wrong.field == "job.spec.trainer.pool"
    assert "did you mean 'shared'?" in wrong.description
