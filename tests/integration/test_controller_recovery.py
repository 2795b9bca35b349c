"""What a job survives: a real controller and real gRPC; it and what it drives die in mid-step.

The controller that dies is a process, killed by SIGKILL at a named point of
the work. Where only its services die it runs in this process.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from support.controlled import (
    Client,
    assert_every_step_once,
    running_controller,
    small_job,
)
from support.controlled_fixtures import fleet, registry
from support.fleet import Fleet
from support.fleet_doubles import HELDOUT_SCENARIOS
from support.full import full
from support.postgres import Postgres
from support.processes import ControllerProcess
from support.waiting import eventually

__all__ = ["fleet", "registry"]

STEPS = 3


@asynccontextmanager
async def connected(controller: ControllerProcess) -> AsyncIterator[Client]:
    """A client of a controller process, which is gone at the end of the block."""
    client = Client(controller.address)
    try:
        yield client
    finally:
        await client.channel.close()
        controller.kill()


@pytest.fixture
async def controller(fleet: Fleet) -> AsyncIterator[tuple[ControllerProcess, Client]]:
    process = ControllerProcess(fleet)
    async with connected(process) as client:
        await process.start()
        yield process, client


def evaluated_job(**changes: Any) -> spec_pb2.JobSpec:
    """Three steps; versions 0, 2 and 3 are evaluated, and every version is kept."""
    return small_job(
        STEPS,
        evaluation=spec_pb2.EvaluationSpec(every_steps=2, samples=2, greedy=True),
        retention=spec_pb2.RetentionSpec(keep_last=10),
        **changes,
    )


async def assert_as_if_nothing_had_happened(fleet: Fleet, client: Client, job_id: str) -> None:
    """Every step, version and evaluation once; nothing is held that is not needed."""
    await assert_every_step_once(fleet, client, job_id, STEPS)
    versions = [v.manifest.version for v in await fleet.client.list_versions(job_id)]
    assert sorted(versions) == list(range(STEPS + 1))
    evaluations = await client.evaluations(job_id)
    assert [(e.version, e.mode) for e in evaluations] == [
        (version, mode) for version in (0, 2, 3) for mode in ("greedy", "sampled")
    ]
    assert {e.episodes for e in evaluations if e.mode == "greedy"} == {HELDOUT_SCENARIOS}
    told = [e for e in await client.events(job_id) if e.type == pb.EVENT_TYPE_EVALUATION]
    assert len(told) == len(evaluations)
    assert (fleet.inference.job, fleet.inference.version) == (job_id, STEPS)
    assert fleet.trainer.job == ""


@pytest.mark.parametrize(
    ("point", "about"),
    [
        full("open", ""),
        full("save:published", "0"),
        full("collect:begin", "/s2/g1"),
        full("collect:end", "/s2/g2"),
        full("judge:begin", "/s2/g0"),
        full("judge:end", "/s2/g2"),
        full("step:begin", "2"),
        ("step:taken", "2"),
        full("save:begin", "2"),
        ("save:published", "2"),
        full("load:end", "@2"),
        full("collect:end", "/v2-greedy/g3"),
        full("close", ""),
    ],
)
async def test_a_killed_controller_goes_on_where_it_was(
    fleet: Fleet, controller: tuple[ControllerProcess, Client], point: str, about: str
) -> None:
    process, client = controller
    hold = fleet.hold(point, about)
    job = await client.create(evaluated_job())
    await hold.reached()
    process.kill()
    stored = process.stored_groups(job.id)
    asked = len(fleet.rollout.requests)
    hold.release()
    await process.start()
    await client.succeeded(job.id)
    again = {request.group_id for request in fleet.rollout.requests[asked:]}
    assert again & stored == set()
    if point.startswith(("step", "save", "load", "judge")) and about != "0":
        assert any("/s2/" in group for group in stored)
    await assert_as_if_nothing_had_happened(fleet, client, job.id)


@pytest.mark.long
async def test_t22_a_controller_killed_again_and_again_while_it_collects_ahead(
    fleet: Fleet, controller: tuple[ControllerProcess, Client]
) -> None:
    process, client = controller
    job = pb.Job()
    for point, about in (("collect:end", "/s2/g0"), ("step:taken", "1"), ("save:published", "2")):
        hold = fleet.hold(point, about)
        if not job.id:
            job = await client.create(evaluated_job(max_staleness=1))
        await hold.reached()
        process.kill()
        hold.release()
        await process.start()
    await client.succeeded(job.id)
    await assert_as_if_nothing_had_happened(fleet, client, job.id)
    assert max(s.metrics["staleness_max"] for s in await client.steps(job.id)) <= 1


@pytest.mark.full
async def test_a_controller_killed_again_and_again_repeats_the_steps_that_took_what_was_ready(
    fleet: Fleet, controller: tuple[ControllerProcess, Client]
) -> None:
    process, client = controller
    order = spec_pb2.GROUP_ORDER_READY
    job = pb.Job()
    for point, about in (("collect:end", "/d1"), ("step:taken", "1"), ("save:published", "2")):
        hold = fleet.hold(point, about)
        if not job.id:
            job = await client.create(small_job(4, max_staleness=1, group_order=order))
        await hold.reached()
        process.kill()
        hold.release()
        await process.start()
    await client.succeeded(job.id)
    steps = await client.steps(job.id)
    assert [each.number for each in steps] == [1, 2, 3, 4]
    for version in await fleet.client.list_versions(job.id):
        if number := version.manifest.version:
            assert version.manifest.group_ids == steps[number - 1].group_ids
    assert max(s.metrics["staleness_max"] for s in steps) <= 1
    trained = [id_ for each in steps for id_ in each.group_ids]
    assert len(trained) == len(set(trained))
    assert all(id_.startswith(f"{job.id}/d") for id_ in trained)


@pytest.mark.parametrize(
    ("who", "point", "about"),
    [
        ("inference", "load:end", "@2"),
        ("trainer", "step:taken", "2"),
        # It is the trainer whom the registry fails, and who rides that out.
        ("registry", "save:begin", "2"),
        full("registry", "collect:end", "/v2-sampled/g4"),
        ("rollout", "collect:end", "/s2/g2"),
        ("judge", "judge:end", "/s2/g2"),
    ],
)
async def test_a_service_that_dies_in_mid_step_costs_only_time(
    fleet: Fleet, who: str, point: str, about: str
) -> None:
    member = getattr(fleet, who)
    async with running_controller(fleet) as client:
        hold = fleet.hold(point, about)
        job = await client.create(evaluated_job())
        await hold.reached()
        await member.kill()
        hold.release()
        # A trainer in the middle of publishing rides out the registry's absence by itself.
        told = point != "save:begin" or who == "trainer"
        try:
            if told:
                assert await recovery_events(client, job.id, f"{who} is lost")
        finally:
            await member.start()
        await client.succeeded(job.id)
        if told:
            assert await recovery_events(client, job.id, f"{who} is back")
        await assert_as_if_nothing_had_happened(fleet, client, job.id)
    # Only what was cut in two is collected again.
    if who in ("trainer", "registry", "judge"):
        assert set(fleet.rollout.collected.values()) == {1}


async def recovery_events(client: Client, job_id: str, beginning: str) -> list[pb.Event]:
    """The job's events of recovery that begin so, as soon as there are any."""
    for _ in range(1000):
        found = [
            event
            for event in await client.events(job_id)
            if event.type == pb.EVENT_TYPE_RECOVERY and event.message.startswith(beginning)
        ]
        if found:
            return found
        await asyncio.sleep(0.05)
    return []


async def test_a_job_paused_in_mid_step_rests_after_it_and_resumes(fleet: Fleet) -> None:
    async with running_controller(fleet) as client:
        hold = fleet.hold("step:begin", "2")
        job = await client.create(evaluated_job())
        await hold.reached()
        assert (await client.pause(job.id)).state == pb.JOB_STATE_PAUSING
        hold.release()
        paused = await client.state(job.id, pb.JOB_STATE_PAUSED)
        assert paused.completed_steps == 2
        assert (fleet.trainer.job, fleet.inference.job) == ("", "")
        # Its place is another's until it is resumed.
        other = await client.create(small_job(1))
        await client.succeeded(other.id)
        assert (await client.get(job.id)).state == pb.JOB_STATE_PAUSED
        assert (await client.resume(job.id)).state == pb.JOB_STATE_QUEUED
        await client.succeeded(job.id)
        await assert_as_if_nothing_had_happened(fleet, client, job.id)
        training = {g: n for g, n in fleet.rollout.collected.items() if "/s" in g}
        assert set(training.values()) == {1}


async def test_a_job_cancelled_in_mid_step_leaves_nothing_running(fleet: Fleet) -> None:
    async with running_controller(fleet) as client:
        hold = fleet.hold("collect:begin", "/s2/g1")
        job = await client.create(evaluated_job())
        await hold.reached()
        # Nothing answers; the calls are cut.
        assert (await client.cancel(job.id)).state == pb.JOB_STATE_CANCELLING
        cancelled = await client.state(job.id, pb.JOB_STATE_CANCELLED)
        assert cancelled.completed_steps == 1
        assert cancelled.phase == ""
        await eventually(lambda: fleet.rollout.running == 0)
        assert (fleet.trainer.job, fleet.inference.job) == ("", "")
        calls = [sum(double.calls.values()) for double in fleet.doubles]
        await asyncio.sleep(0.3)
        assert [sum(double.calls.values()) for double in fleet.doubles] == calls
        assert (await client.get(job.id)).state == pb.JOB_STATE_CANCELLED
        # Trainer and pool are free for the next job.
        after = await client.create(small_job(1))
        await client.succeeded(after.id)


async def test_a_controller_that_is_told_to_stop_leaves_the_job_to_the_next(
    fleet: Fleet, controller: tuple[ControllerProcess, Client]
) -> None:
    process, client = controller
    hold = fleet.hold("step:begin", "2")
    job = await client.create(evaluated_job())
    await hold.reached()
    assert await process.stop() == 0
    hold.release()
    stored = process.stored_groups(job.id)
    asked = len(fleet.rollout.requests)
    assert {f"{job.id}/s2/g{i}" for i in range(3)} <= stored
    await process.start(anew=True)
    await client.succeeded(job.id)
    assert {r.group_id for r in fleet.rollout.requests[asked:]} & stored == set()
    await assert_as_if_nothing_had_happened(fleet, client, job.id)


@pytest.fixture(params=[full("sqlite"), "postgresql"])
def database_url(request: pytest.FixtureRequest, fleet: Fleet) -> str:
    """A database that two controllers may share."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{fleet.folder}/shared.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.create_database()


async def test_a_standby_takes_over_when_the_lease_has_ended(
    fleet: Fleet, database_url: str
) -> None:
    # Longer than a busy machine keeps a leader from saying that it lives.
    first = ControllerProcess(fleet, database_url, "first", lease_seconds=8)
    second = ControllerProcess(fleet, database_url, "second", lease_seconds=8)
    async with connected(first) as client, connected(second) as other:
        await first.start()
        hold = fleet.hold("step:begin", "2")
        job = await client.create(evaluated_job())
        await second.start()
        await hold.reached()
        # A standby reads and takes requests, and runs nothing.
        assert (await other.get(job.id)).state == pb.JOB_STATE_RUNNING
        waiting = await other.create(small_job(1))
        assert (await first.leads(), await second.leads()) == (True, False)
        first.kill()
        hold.release()
        await other.succeeded(waiting.id)
        assert await second.leads()
        await assert_every_step_once(fleet, other, job.id, STEPS)
        # The first comes back and stands by.
        await first.start()
        await asyncio.sleep(1.5)
        assert (await first.leads(), await second.leads()) == (False, True)


async def test_a_leader_that_slept_through_its_lease_writes_nothing_when_it_wakes(
    fleet: Fleet, database_url: str
) -> None:
    first = ControllerProcess(fleet, database_url, "first")
    second = ControllerProcess(fleet, database_url, "second")
    async with connected(first) as client, connected(second) as other:
        await first.start()
        hold = fleet.hold("step:begin", "2")
        job = await client.create(evaluated_job())
        await second.start()
        await hold.reached()
        await put_to_sleep_until_replaced(first, second)
        hold.release()
        await other.until(job.id, lambda seen: seen.completed_steps >= 2)
        first.signal(signal.SIGCONT)
        # Who leads is theirs to settle: on a busy machine either may lose the lease in its turn.
        await other.succeeded(job.id)
        await assert_as_if_nothing_had_happened(fleet, other, job.id)


async def put_to_sleep_until_replaced(
    leader: ControllerProcess, standby: ControllerProcess
) -> None:
    """SIGSTOP. One that fell asleep in a transaction holds its lock, and is woken for a moment."""
    for _ in range(5):
        leader.signal(signal.SIGSTOP)
        for _ in range(100):
            if await standby.leads():
                return
            await asyncio.sleep(0.1)
        leader.signal(signal.SIGCONT)
        await asyncio.sleep(0.3)
    raise AssertionError("the standby did not take over")
