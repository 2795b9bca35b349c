"""A job and its trainer while a cluster places it; on fakes of every port."""

from __future__ import annotations

import pytest
from podium.jobs.v1 import job_service_pb2 as pb
from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.ports import JobRecord
from podium_controller.domain.waits import Wait
from support.controlled import small_job
from support.memory_fixtures import client, fleet
from support.memory_fleet import MemoryClient, MemoryFleet, assert_every_step_once
from support.placing_trainer import PlacingTrainer

__all__ = ["client", "fleet"]

NO_ROOM = Wait("TRAINER_UNSCHEDULABLE", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
ONE_LESS = Wait("TRAINER_UNSCHEDULABLE", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")
STARTING = Wait("TRAINER_STARTING", "podium-trainer-0 starts")
BAD_SETTINGS = JobFailedError("PODIUM_TRAINER_PORT: got 'x'", reason="TRAINER_MISCONFIGURED")


@pytest.fixture
def placing(fleet: MemoryFleet, monkeypatch: pytest.MonkeyPatch) -> list[PlacingTrainer]:
    """The trainers that jobs were given, one a run."""
    made: list[PlacingTrainer] = []
    given = fleet.trainers.of

    def of(job: JobRecord) -> PlacingTrainer:
        made.append(PlacingTrainer(given(job), [STARTING, NO_ROOM, ONE_LESS]))
        return made[-1]

    monkeypatch.setattr(fleet.trainers, "of", of)
    return made


async def waiting(client: MemoryClient, job_id: str) -> pb.Job:
    """The job once it says what its trainer waits for."""
    return await client.until(job_id, lambda job: job.wait_message == ONE_LESS.message)


async def test_a_job_says_what_its_trainer_waits_for(
    fleet: MemoryFleet, client: MemoryClient, placing: list[PlacingTrainer]
) -> None:
    job = await client.create(small_job(2))
    told = await waiting(client, job.id)
    assert (told.state, told.phase) == (pb.JOB_STATE_RUNNING, "wait")
    assert told.wait_reason == ONE_LESS.reason
    assert fleet.calls["open"] == 0
    placing[0].placed.set()
    done = await client.succeeded(job.id)
    await assert_every_step_once(fleet, client, job.id, 2)
    assert (done.wait_reason, done.wait_message) == ("", "")
    events = [event for event in await client.events(job.id) if "trainer" in event.message]
    assert [event.type for event in events] == [pb.EVENT_TYPE_WARNING, pb.EVENT_TYPE_RECOVERY]
    assert NO_ROOM.message in events[0].message
    assert placing[0].closed == [job.id]


async def test_a_job_that_waits_can_be_paused_resumed_and_cancelled(
    client: MemoryClient, placing: list[PlacingTrainer]
) -> None:
    job = await client.create(small_job(1))
    await waiting(client, job.id)
    await client.pause(job.id)
    paused = await client.state(job.id, pb.JOB_STATE_PAUSED)
    assert (paused.wait_reason, paused.wait_message) == ("", "")
    assert placing[0].closed == [job.id]
    await client.resume(job.id)
    await waiting(client, job.id)
    await client.cancel(job.id)
    cancelled = await client.state(job.id, pb.JOB_STATE_CANCELLED)
    assert (cancelled.wait_reason, cancelled.wait_message) == ("", "")
    assert placing[-1].closed == [job.id]


async def test_a_trainer_that_there_will_never_be_fails_the_job(
    client: MemoryClient, placing: list[PlacingTrainer]
) -> None:
    job = await client.create(small_job(1))
    await waiting(client, job.id)
    placing[0].hopeless = BAD_SETTINGS
    placing[0].placed.set()
    failed = await client.state(job.id, pb.JOB_STATE_FAILED)
    assert failed.failure_reason == "TRAINER_MISCONFIGURED"
    assert failed.failure_message == BAD_SETTINGS.message
    assert placing[0].closed == [job.id]


async def test_a_lost_trainer_is_placed_again_before_it_is_opened(
    fleet: MemoryFleet, client: MemoryClient, placing: list[PlacingTrainer]
) -> None:
    hold = fleet.hold("step:begin", "2")
    job = await client.create(small_job(3))
    await waiting(client, job.id)
    trainer = placing[0]
    trainer.placed.set()
    await hold.reached()
    asked = trainer.asked
    trainer.placed.clear()
    fleet.kill("trainer")
    hold.release()
    told = await waiting(client, job.id)
    assert told.phase == "recover"
    assert trainer.asked == asked + 1
    fleet.start("trainer")
    trainer.placed.set()
    await client.succeeded(job.id)
    await assert_every_step_once(fleet, client, job.id, 3)
