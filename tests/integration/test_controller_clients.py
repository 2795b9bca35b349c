"""Clients that drive jobs and die: a real controller, real client processes that are killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from podium.core.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.jobs.v1 import session_service_pb2 as sessions_pb
from podium.jobs.v1 import session_service_pb2_grpc
from podium.kit.rpc import rpc_errors
from support.controlled import Client, running_controller, small_job
from support.controlled_fixtures import client, fleet, registry
from support.fleet import Fleet
from support.fleet_doubles import BASE_MODEL
from support.processes import ControllerProcess
from support.sessions import batch, client_job, finish, submit
from support.waiting import eventually

__all__ = ["client", "fleet", "registry"]

SCRIPT = """
import asyncio, sys, time
import podium

async def main():
    async with podium.AsyncClient() as client:
        await client.models.register(sys.argv[1], sys.argv[2])
        print("registered", flush=True)
        # An agent that keeps the event loop is no less alive.
        time.sleep(3600)

asyncio.run(main())
"""


class Script:
    """A client-driven script as a process."""

    def __init__(self, fleet: Fleet, controller: str, model: str) -> None:
        self._out = fleet.folder / f"{model}-{os.urandom(4).hex()}"
        addresses = {
            "PODIUM_ADDRESS": controller,
            "PODIUM_INFERENCE_ADDRESS": fleet.inference.address,
            "PODIUM_REGISTRY_ADDRESS": fleet.registry.address,
            "PODIUM_OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        }
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SCRIPT, model, BASE_MODEL],
                env={**os.environ, **addresses},
                cwd=fleet.folder,
                stdout=out,
                stderr=out,
            )

    @property
    def said(self) -> str:
        return self._out.read_text()

    async def says(self, words: str) -> None:
        """Waits for it."""

        def has_said() -> bool:
            assert self.process.poll() is None, self.said
            return words in self.said

        await eventually(has_said, within=120)

    def kill(self) -> None:
        """SIGKILL, and gone when it returns."""
        self.process.kill()
        self.process.wait()


@asynccontextmanager
async def scripts(fleet: Fleet, controller: str) -> AsyncIterator[Callable[[str], Script]]:
    """Starts them; they end with the block."""
    started: list[Script] = []

    def start(model: str) -> Script:
        started.append(Script(fleet, controller, model))
        return started[-1]

    try:
        yield start
    finally:
        for script in started:
            script.kill()


async def beat(client: Client, job_id: str, seconds: float) -> pb.Job:
    stub: session_service_pb2_grpc.SessionServiceAsyncStub
    stub = session_service_pb2_grpc.SessionServiceStub(client.channel)
    request = sessions_pb.HeartbeatRequest(job_id=job_id, client="a test", seconds=seconds)
    with rpc_errors("controller"):
        return (await stub.Heartbeat(request)).job


@pytest.mark.long
async def test_a_killed_client_frees_its_place_and_whoever_waits_was_told_for_whom(
    fleet: Fleet,
) -> None:
    controller = ControllerProcess(fleet)
    await controller.start()
    people = Client(controller.address)
    try:
        async with scripts(fleet, controller.address) as start:
            first = start("first")
            await first.says("registered")
            second = start("second")
            await second.says("job second is queued and waits (MAX_ACTIVE_JOBS): 1 job runs")
            assert "MAX_ACTIVE_JOBS: first; `podium job pause first`" in second.said
            # The first one lives, though its event loop stands still.
            await asyncio.sleep(12)
            held = await people.get("first")
            assert (held.state, held.phase) == (pb.JOB_STATE_RUNNING, "collect")
            assert "registered" not in second.said

            first.kill()
            await second.says("registered")
            assert "job second waits no longer" in second.said
            gone = await people.get("first")
            assert (gone.state, gone.phase) == (pb.JOB_STATE_PAUSED, "idle")
            assert any("client is gone" in event.message for event in await people.events("first"))

            again = start("first")
            await again.says("job first is queued and waits (MAX_ACTIVE_JOBS)")
            second.kill()
            await again.says("registered")
    finally:
        await people.channel.close()
        controller.kill()


async def test_a_silent_client_s_place_is_kept_until_somebody_wants_it(
    fleet: Fleet, client: Client
) -> None:
    job = await client.create(client_job(2), "silent")
    await client.until(job.id, lambda job: job.phase == "collect")
    await beat(client, job.id, 0.2)
    await asyncio.sleep(1.5)
    assert (await client.get(job.id)).state == pb.JOB_STATE_RUNNING

    other = await client.create(client_job(1), "other-1")
    await client.until(other.id, lambda job: job.phase == "collect")
    idle = await client.get(job.id)
    assert (idle.state, idle.phase) == (pb.JOB_STATE_PAUSED, "idle")
    # Back: it waits its turn, and trains when that comes.
    assert (await beat(client, job.id, 600)).state == pb.JOB_STATE_QUEUED
    await submit(client, job.id, batch(job.id, 0))
    waiting = await client.until(job.id, lambda job: job.wait_reason != "")
    assert "other" in waiting.wait_message
    await submit(client, other.id, batch(other.id, 0))
    await client.succeeded(other.id)
    await client.until(job.id, lambda job: job.completed_steps == 1)
    await finish(client, job.id)
    await client.succeeded(job.id)


async def test_one_that_takes_its_leave_is_gone_at_once(fleet: Fleet, client: Client) -> None:
    job = await client.create(client_job(2), "leaves")
    await client.until(job.id, lambda job: job.phase == "collect")
    await beat(client, job.id, 3600)
    await beat(client, job.id, 0)
    other = await client.create(client_job(1), "other-2")
    await client.until(other.id, lambda job: job.phase == "collect")
    assert (await client.get(job.id)).phase == "idle"


async def test_one_that_lives_and_thinks_has_its_idle_time_and_no_more(
    fleet: Fleet, client: Client
) -> None:
    spec = client_job(2)
    # In which the other must be seen to wait, on any machine.
    spec.client.idle_seconds = 4
    job = await client.create(spec, "thinks")
    await beat(client, job.id, 3600)
    await client.until(job.id, lambda job: job.phase == "collect")
    other = await client.create(client_job(1), "other-3")
    await client.until(other.id, lambda job: job.wait_reason != "")
    await client.until(other.id, lambda job: job.phase == "collect")
    assert (await beat(client, job.id, 3600)).state == pb.JOB_STATE_PAUSED
    await asyncio.sleep(0.5)
    assert (await client.get(job.id)).phase == "idle"


async def test_one_that_never_said_that_it_lives_is_waited_for(
    fleet: Fleet, client: Client
) -> None:
    job = await client.create(client_job(2), "old")
    await client.until(job.id, lambda job: job.phase == "collect")
    other = await client.create(client_job(1), "other-4")
    await client.until(other.id, lambda job: job.wait_reason != "")
    await asyncio.sleep(2)
    assert (await client.get(job.id)).state == pb.JOB_STATE_RUNNING


async def test_heartbeats_that_are_nobody_s_are_refused(fleet: Fleet) -> None:
    async with running_controller(fleet, max_active_jobs=2) as client:
        with pytest.raises(NotFoundError):
            await beat(client, "nope", 10)
        job = await client.create(client_job(1), "mine")
        with pytest.raises(InvalidArgumentError, match="seconds"):
            await beat(client, job.id, 1e9)
        await client.cancel(job.id)
        await client.state(job.id, pb.JOB_STATE_CANCELLED)
        with pytest.raises(FailedPreconditionError) as ended:
            await beat(client, job.id, 10)
        assert ended.value.reason == "JOB_ENDED"
        ordinary = await client.create(small_job(1), "ordinary")
        with pytest.raises(FailedPreconditionError) as wrong:
            await beat(client, ordinary.id, 10)
        assert wrong.value.reason == "NOT_CLIENT_DRIVEN"
