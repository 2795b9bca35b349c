"""What a job survives: what it drives dies at every point of a step, and people stop it there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from podium.core.errors import ResourceExhaustedError, UnavailableError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from podium_controller.domain.errors import TOKEN_REFUSED
from prometheus_client import REGISTRY
from support.controlled import small_job
from support.hold import Hold
from support.memory_fixtures import client, fleet
from support.memory_fleet import MemoryClient, MemoryFleet, assert_every_step_once
from support.waiting import eventually

__all__ = ["client", "fleet"]

STEPS = 3


def evaluated_job(**changes: Any) -> spec_pb2.JobSpec:
    """Three steps; versions 0, 2 and 3 are evaluated, and every version is kept."""
    return small_job(
        STEPS,
        evaluation=spec_pb2.EvaluationSpec(every_steps=2, samples=2, greedy=True),
        retention=spec_pb2.RetentionSpec(keep_last=10),
        **changes,
    )


async def assert_as_if_nothing_had_happened(
    fleet: MemoryFleet, client: MemoryClient, job_id: str
) -> None:
    """Every step, version and evaluation once; nothing is held that is not needed."""
    await assert_every_step_once(fleet, client, job_id, STEPS)
    assert fleet.versions(job_id) == list(range(STEPS + 1))
    evaluations = await client.evaluations(job_id)
    assert [(e.version, e.mode) for e in evaluations] == [
        (version, mode) for version in (0, 2, 3) for mode in ("greedy", "sampled")
    ]
    told = [e for e in await client.events(job_id) if e.type == pb.EVENT_TYPE_EVALUATION]
    assert len(told) == len(evaluations)
    assert (fleet.inference.job, fleet.inference.version) == (job_id, STEPS)
    assert fleet.trainer.job == ""


async def recovery_event(client: MemoryClient, job_id: str, beginning: str) -> None:
    """Returns once the job's people are told of a loss, or of its end."""
    async with asyncio.timeout(20):
        while not any(
            event.type == pb.EVENT_TYPE_RECOVERY and event.message.startswith(beginning)
            for event in await client.events(job_id)
        ):
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("who", "point", "about"),
    [
        ("inference", "load:begin", "@2"),
        ("inference", "load:end", "@2"),
        ("inference", "collect:begin", "/s2/g1"),
        ("inference", "collect:begin", "/v2-sampled/g1"),
        ("trainer", "open", ""),
        ("trainer", "step:begin", "2"),
        ("trainer", "step:taken", "2"),
        ("trainer", "save:begin", "2"),
        ("trainer", "save:published", "2"),
        ("registry", "load:begin", "@2"),
        ("registry", "save:begin", "2"),
        ("rollout", "collect:begin", "/s2/g1"),
        ("rollout", "collect:end", "/s2/g2"),
        ("judge", "judge:begin", "/s2/g0"),
        ("judge", "judge:end", "/s2/g2"),
    ],
)
async def test_a_service_that_dies_in_mid_step_costs_only_time(
    fleet: MemoryFleet, client: MemoryClient, who: str, point: str, about: str
) -> None:
    hold = fleet.hold(point, about)
    job = await client.create(evaluated_job())
    await hold.reached()
    fleet.kill(who)
    hold.release()
    await recovery_event(client, job.id, f"{who} is lost")
    fleet.start(who)
    await client.succeeded(job.id)
    await recovery_event(client, job.id, f"{who} is back")
    await assert_as_if_nothing_had_happened(fleet, client, job.id)
    # Only what was cut in two is collected again.
    if who in ("trainer", "registry", "judge"):
        assert set(fleet.rollout.collected.values()) == {1}


async def test_a_service_that_stays_away_ends_the_job_by_its_name(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    hold = fleet.hold("step:begin", "2")
    job = await client.create(small_job(STEPS, recovery_timeout_seconds=0.1))
    await hold.reached()
    fleet.kill("trainer")
    hold.release()
    failed = await client.state(job.id, pb.JOB_STATE_FAILED)
    fleet.start("trainer")
    assert failed.failure_reason == "TRAINER_LOST"
    assert "trainer stayed away for more than 0.1 seconds" in failed.failure_message
    assert failed.completed_steps == 1
    assert fleet.inference.job == ""
    # The next job finds everything free.
    await client.succeeded((await client.create(small_job(1))).id)


@pytest.mark.parametrize(
    ("point", "error", "says"),
    [
        (
            "save:begin",
            ResourceExhaustedError("no space is left", reason="STORAGE_FULL"),
            "for more than 0.1 seconds",
        ),
        (
            "step:begin",
            UnavailableError(
                "trainer refuses another service",
                reason=TOKEN_REFUSED,
                metadata={"peer": "trainer"},
            ),
            "trainer stayed away for more than 0.1 seconds",
        ),
    ],
)
async def test_what_is_not_the_jobs_fault_and_stays_ends_it_by_its_name(
    fleet: MemoryFleet, client: MemoryClient, point: str, error: Exception, says: str
) -> None:
    refuses = False

    async def at(reached: str, about: str) -> None:
        nonlocal refuses
        refuses = refuses or (reached, about) == (point, "2")
        if refuses and reached in (point, "open"):
            raise error

    fleet.at = at
    job = await client.create(small_job(STEPS, recovery_timeout_seconds=0.1))
    waits = await client.until(job.id, lambda job: job.wait_reason != "")
    assert (waits.state, waits.wait_reason) == (pb.JOB_STATE_RUNNING, error.reason)
    failed = await client.state(job.id, pb.JOB_STATE_FAILED)
    assert failed.failure_reason == error.reason
    assert says in failed.failure_message
    taken = 2 if point == "save:begin" else 1
    assert fleet.trainer.taken == [(job.id, step) for step in range(1, taken + 1)]


@pytest.mark.parametrize(
    ("point", "about", "completed"),
    [
        ("collect:begin", "/s2/g1", 2),
        ("step:begin", "2", 2),
        # An evaluation is left at once; its groups are stored.
        ("collect:begin", "/v2-sampled/g1", 2),
    ],
)
async def test_a_job_paused_in_mid_step_rests_after_it_and_resumes(
    fleet: MemoryFleet, client: MemoryClient, point: str, about: str, completed: int
) -> None:
    hold = fleet.hold(point, about)
    job = await client.create(evaluated_job())
    await hold.reached()
    assert (await client.pause(job.id)).state == pb.JOB_STATE_PAUSING
    hold.release()
    paused = await client.state(job.id, pb.JOB_STATE_PAUSED)
    assert paused.completed_steps == completed
    assert (fleet.trainer.job, fleet.inference.job) == ("", "")
    # Its place is another's until it is resumed.
    await client.succeeded((await client.create(small_job(1))).id)
    assert (await client.get(job.id)).state == pb.JOB_STATE_PAUSED
    assert (await client.resume(job.id)).state == pb.JOB_STATE_QUEUED
    await client.succeeded(job.id)
    await assert_as_if_nothing_had_happened(fleet, client, job.id)
    training = {g: n for g, n in fleet.rollout.collected.items() if "/s" in g}
    assert set(training.values()) == {1}


@pytest.mark.parametrize(
    ("point", "about", "completed"),
    [
        ("collect:begin", "/s2/g1", 1),
        ("step:begin", "2", 1),
        # What is published counts, whatever came of the call.
        ("save:published", "2", 2),
        ("load:begin", "@2", 2),
        ("collect:begin", "/v2-sampled/g1", 2),
    ],
)
async def test_a_job_cancelled_in_mid_step_leaves_nothing_running(
    fleet: MemoryFleet, client: MemoryClient, point: str, about: str, completed: int
) -> None:
    hold = fleet.hold(point, about)
    job = await client.create(evaluated_job())
    await hold.reached()
    # Nothing answers; the calls are cut.
    assert (await client.cancel(job.id)).state == pb.JOB_STATE_CANCELLING
    cancelled = await client.state(job.id, pb.JOB_STATE_CANCELLED)
    assert (cancelled.completed_steps, cancelled.phase) == (completed, "")
    await eventually(lambda: fleet.watched_rollout.running == 0)
    assert (fleet.trainer.job, fleet.inference.job) == ("", "")
    # Trainer and pool are free for the next job, and nobody else calls any more.
    after = await client.create(small_job(1))
    abouts: list[str] = []

    async def watch(point: str, about: str) -> None:
        abouts.append(about)

    fleet.at = watch
    await client.succeeded(after.id)
    assert not [about for about in abouts if about.startswith(job.id)]
    assert (await client.get(job.id)).state == pb.JOB_STATE_CANCELLED


def times(phase: str) -> float:
    """How often the phase has been measured in this process."""
    name = "podium_controller_step_duration_seconds_count"
    return REGISTRY.get_sample_value(name, {"phase": phase}) or 0.0


async def test_opening_the_trainer_is_a_phase_of_its_own(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    opening, saving = Hold("open", ""), Hold("save:begin", "0")

    async def at(point: str, about: str) -> None:
        await opening(point, about)
        await saving(point, about)

    fleet.at = at
    opened, published = times("open"), times("publish")
    job = await client.create(small_job(1))
    await opening.reached()
    assert (await client.get(job.id)).phase == "open"
    opening.release()
    await saving.reached()
    assert (await client.get(job.id)).phase == "publish"
    assert (times("open"), times("publish")) == (opened + 1, published)
    saving.release()
    await client.succeeded(job.id)
    assert (times("open"), times("publish")) == (opened + 1, published + 2)


async def test_a_trainer_that_is_opened_again_after_a_loss_is_measured_too(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    hold = fleet.hold("step:begin", "1")
    job = await client.create(small_job(1))
    await hold.reached()
    opened = times("open")
    fleet.kill("trainer")
    fleet.start("trainer")
    hold.release()
    await client.succeeded(job.id)
    assert times("open") == opened + 1
