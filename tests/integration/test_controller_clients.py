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
from support.controlled import Client, running_controller, small_job
from support.controlled_fixtures import fleet, registry
from support.fleet import Fleet
from support.fleet_doubles import BASE_MODEL
from support.processes import ControllerProcess
from support.sessions import beat, client_job
from support.waiting import eventually

__all__ = ["fleet", "registry"]

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


async def test_a_heartbeat_is_heard_and_those_that_are_nobody_s_are_refused(fleet: Fleet) -> None:
    async with running_controller(fleet, max_active_jobs=2) as client:
        with pytest.raises(NotFoundError):
            await beat(client, "nope", 10)
        job = await client.create(client_job(1), "mine")
        assert (await beat(client, job.id, 10)).id == "mine"
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
