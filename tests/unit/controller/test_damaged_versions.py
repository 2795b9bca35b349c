"""A job whose newest versions are damaged goes on from the newest whole one, every step once."""

from __future__ import annotations

from typing import Any

import pytest
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from support.controlled import small_job
from support.hold import Hold
from support.memory_fixtures import client, fleet
from support.memory_fleet import MemoryClient, MemoryFleet, assert_every_step_once

__all__ = ["client", "fleet"]

STEPS = 4
KEPT: dict[str, Any] = {"retention": spec_pb2.RetentionSpec(keep_last=10)}


def damage(fleet: MemoryFleet, job_id: str, *versions: int) -> None:
    """Their files, and nothing else."""
    for version in versions:
        fleet.registry.models[job_id][version].damaged = True


def lose_trainer(fleet: MemoryFleet) -> None:
    fleet.kill("trainer")
    fleet.start("trainer")


async def at_step(
    fleet: MemoryFleet, client: MemoryClient, step: int, **changes: Any
) -> tuple[str, Hold]:
    """A job that is held before it takes a step."""
    hold = fleet.hold("step:begin", str(step))
    job = await client.create(small_job(STEPS, **changes))
    await hold.reached()
    return job.id, hold


async def warnings(client: MemoryClient, job_id: str) -> list[str]:
    return [e.message for e in await client.events(job_id) if e.type == pb.EVENT_TYPE_WARNING]


@pytest.mark.parametrize("versions", [(3,), (3, 2), (3, 2, 1, 0)])
async def test_a_job_goes_on_from_the_newest_whole_version_and_mends_the_others(
    fleet: MemoryFleet, client: MemoryClient, versions: tuple[int, ...]
) -> None:
    job, hold = await at_step(fleet, client, 4, **KEPT)
    damage(fleet, job, *versions)
    lose_trainer(fleet)
    hold.release()
    await client.succeeded(job)
    # Nothing is counted, collected or trained into the weights twice.
    await assert_every_step_once(fleet, client, job, STEPS)
    assert set(fleet.rollout.collected.values()) == {1}
    told = [text for text in await warnings(client, job) if "damaged" in text]
    base = "the beginning" if 0 in versions else f"version {min(versions) - 1}"
    assert any("version 3 is damaged (" in text for text in told)
    assert f"goes on from {base}" in told[-1]
    assert not any(stored.damaged for stored in fleet.registry.models[job].values())


async def test_with_no_version_kept_before_it_the_steps_are_taken_from_the_beginning(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    job, hold = await at_step(fleet, client, 4)
    for version in fleet.versions(job)[:-1]:
        del fleet.registry.models[job][version]
    damage(fleet, job, 3)
    lose_trainer(fleet)
    hold.release()
    await client.succeeded(job)
    await assert_every_step_once(fleet, client, job, STEPS)


async def test_a_damage_that_the_pool_meets_is_mended_as_well(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    hold = fleet.hold("load:begin", "@2")
    job = await client.create(small_job(STEPS, **KEPT))
    await hold.reached()
    damage(fleet, job.id, 2)
    hold.release()
    await client.succeeded(job.id)
    await assert_every_step_once(fleet, client, job.id, STEPS)


async def test_steps_that_come_out_otherwise_go_on_and_say_so(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    job, hold = await at_step(fleet, client, 4, **KEPT)
    damage(fleet, job, 3)
    fleet.trainer.noisy = True
    lose_trainer(fleet)
    hold.release()
    await client.succeeded(job)
    steps = await client.steps(job)
    assert [step.number for step in steps] == list(range(1, STEPS + 1))
    assert set(fleet.rollout.collected.values()) == {1}
    assert any("not bit for bit version 3" in text for text in await warnings(client, job))
    # What can be read is whole; what is damaged is not called anything else.
    stored = fleet.registry.models[job]
    assert (stored[3].damaged, stored[STEPS].damaged) == (True, False)


async def test_a_version_that_nothing_can_make_again_ends_the_job_by_its_name(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    job, hold = await at_step(fleet, client, 4, **KEPT)
    damage(fleet, job, 3)
    fleet.trainer.noisy = True
    lose_trainer(fleet)
    fleet.kill("inference")
    fleet.start("inference")
    hold.release()
    failed = await client.state(job, pb.JOB_STATE_FAILED)
    assert failed.failure_reason == "VERSION_DAMAGED"
    assert f"{job}@3" in failed.failure_message
    assert f"--set fork.model={job} --set fork.version=" in failed.failure_message
    assert failed.completed_steps == 3
