"""What is not the job's fault is waited out: a full disk, a refused token, a forbidden store."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from podium.jobs.v1 import job_service_pb2 as pb
from podium_controller.training import recovery
from support.controlled import assert_every_step_once, running_controller, small_job
from support.controlled_fixtures import fleet, registry
from support.fleet import Fleet
from support.fleet_doubles import Member
from support.full import full
from support.processes import RegistryProcess
from support.waiting import eventually

__all__ = ["fleet", "registry"]

STEPS = 3
MIB = 1 << 20


async def test_a_full_disk_is_waited_out_and_costs_no_second_training(
    fleet: Fleet, registry: RegistryProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    # More attempts than a lost service has, in seconds.
    monkeypatch.setattr(recovery, "_LONGEST_PAUSE", 0.2)
    async with running_controller(fleet) as client:
        hold = fleet.hold("save:begin", "2")
        job = await client.create(small_job(STEPS, recovery_timeout_seconds=120))
        await hold.reached()
        fleet.trainer.ballast = {"state/ballast.bin": os.urandom(3 * MIB)}
        # The kernel refuses the process longer files (EFBIG).
        resource.prlimit(registry.pid, resource.RLIMIT_FSIZE, (2 * MIB, resource.RLIM_INFINITY))
        try:
            hold.release()
            saves = fleet.trainer.calls["save:begin"]
            waiting = await client.until(job.id, lambda seen: bool(seen.wait_reason))
            assert waiting.wait_reason == "STORAGE_FULL"
            await eventually(lambda: fleet.trainer.calls["save:begin"] > saves + 15)
            assert (await client.get(job.id)).state == pb.JOB_STATE_RUNNING
        finally:
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(registry.pid, resource.RLIMIT_FSIZE, unlimited)
        await client.succeeded(job.id)
        assert fleet.trainer.taken == [(job.id, step) for step in range(1, STEPS + 1)]
        await assert_every_step_once(fleet, client, job.id, STEPS)


@pytest.mark.long
async def test_a_disk_that_stays_full_ends_the_job_when_its_patience_is_over(
    fleet: Fleet, registry: RegistryProcess
) -> None:
    async with running_controller(fleet) as client:
        hold = fleet.hold("save:begin", "2")
        job = await client.create(small_job(STEPS, recovery_timeout_seconds=3))
        await hold.reached()
        fleet.trainer.ballast = {"state/ballast.bin": os.urandom(3 * MIB)}
        resource.prlimit(registry.pid, resource.RLIMIT_FSIZE, (2 * MIB, resource.RLIM_INFINITY))
        try:
            hold.release()
            failed = await client.state(job.id, pb.JOB_STATE_FAILED)
        finally:
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(registry.pid, resource.RLIMIT_FSIZE, unlimited)
        assert failed.failure_reason == "STORAGE_FULL"
        assert "for more than 3 seconds" in failed.failure_message
        assert fleet.trainer.taken == [(job.id, 1), (job.id, 2)]


@pytest.mark.parametrize(
    ("who", "point", "about"),
    [
        full("rollout", "collect:begin", "/s2/g1"),
        full("judge", "judge:begin", "/s2/g0"),
        full("trainer", "step:begin", "2"),
        ("trainer", "save:begin", "2"),
        full("inference", "load:begin", "@2"),
        # It refuses the trainer, which hands that on.
        ("registry", "save:begin", "2"),
        full("registry", "load:begin", "@2"),
    ],
)
async def test_a_token_swapped_on_one_service_costs_a_job_only_time(
    fleet: Fleet, tmp_path: Path, who: str, point: str, about: str
) -> None:
    others = tmp_path / "tokens"
    others.write_text("a-token-that-the-others-do-not-have\n")
    peer: Member | RegistryProcess = getattr(fleet, who)
    async with running_controller(fleet) as client:
        hold = fleet.hold(point, about)
        job = await client.create(small_job(STEPS))
        await hold.reached()
        await peer.kill()
        await peer.start(tokens=others)
        hold.release()
        try:
            waiting = await client.until(
                job.id, lambda seen: seen.wait_reason == "TOKEN_REFUSED", within=120
            )
            assert waiting.state == pb.JOB_STATE_RUNNING
            assert f"{who} refuses another service" in waiting.wait_message
        finally:
            await peer.kill()
            await peer.start()
        await client.succeeded(job.id)
        await assert_every_step_once(fleet, client, job.id, STEPS)


async def test_a_token_that_stays_refused_ends_the_job_by_its_name(
    fleet: Fleet, tmp_path: Path
) -> None:
    others = tmp_path / "tokens"
    others.write_text("a-token-that-the-others-do-not-have\n")
    async with running_controller(fleet) as client:
        hold = fleet.hold("step:begin", "2")
        # A channel may take some seconds to connect anew: until then the trainer is merely lost.
        job = await client.create(small_job(STEPS, recovery_timeout_seconds=6))
        await hold.reached()
        await fleet.trainer.kill()
        await fleet.trainer.start(tokens=others)
        hold.release()
        failed = await client.state(job.id, pb.JOB_STATE_FAILED)
        assert failed.failure_reason == "TOKEN_REFUSED"
        assert "trainer stayed away for more than 6 seconds" in failed.failure_message
