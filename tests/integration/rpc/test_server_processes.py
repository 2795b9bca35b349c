"""A service's process: its signals, its drain and its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from podium.core import errors
from podium.kit.rpc import connect, rpc_errors
from podium.registry.v1 import registry_service_pb2 as reg
from podium.registry.v1 import registry_service_pb2_grpc as reg_grpc

TESTS = Path(__file__).resolve().parents[2]


@asynccontextmanager
async def process(*arguments: str, **environment: str):
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "support.drained_service",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(TESTS), **environment},
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def until(stream: asyncio.StreamReader, message: str) -> dict[str, Any]:
    """The first JSON log line with the message."""
    async for line in stream:
        record = json.loads(line)
        if record["message"] == message:
            return record
    raise AssertionError(f"the process ended without saying {message!r}")


async def test_sigterm_lets_running_calls_finish_and_exits_0() -> None:
    async with process() as child:
        serving = await until(child.stderr, "serving")
        assert serving["service"] == "registry"
        async with connect(serving["address"]) as channel:
            stub = reg_grpc.RegistryServiceStub(channel)
            watch = stub.WatchVersions(reg.WatchVersionsRequest())
            await watch.read()
            running = stub.GetVersion(reg.GetVersionRequest(model="until-drain"))
            # Its own connection has it in the server's hands once this one is answered.
            await stub.GetVersion(reg.GetVersionRequest(model="m"))
            child.send_signal(signal.SIGTERM)
            assert (await running).version.manifest_digest == "sha256:0"
            with pytest.raises(errors.UnavailableError), rpc_errors("registry"):
                await watch.read()
        assert await asyncio.wait_for(child.wait(), 120) == 0
        assert b"released" in await child.stdout.read()


async def test_probes_and_metrics_answer_during_a_long_start_and_sigterm_ends_it() -> None:
    async with process("slow-start") as child:
        assert await child.stdout.readline() == b"building\n"
        child.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(child.wait(), 120) == 0


async def test_a_second_signal_cuts_what_still_runs() -> None:
    async with process() as child:
        serving = await until(child.stderr, "serving")
        async with connect(serving["address"]) as channel:
            stub = reg_grpc.RegistryServiceStub(channel)
            watch = stub.WatchVersions(reg.WatchVersionsRequest())
            await watch.read()
            running = stub.GetVersion(reg.GetVersionRequest(model="hang"))
            await stub.GetVersion(reg.GetVersionRequest(model="m"))
            child.send_signal(signal.SIGTERM)
            await until(child.stderr, "draining")
            with pytest.raises(errors.UnavailableError), rpc_errors("registry"):
                await watch.read()
            assert child.returncode is None
            child.send_signal(signal.SIGINT)
            with pytest.raises(errors.PodiumError), rpc_errors("registry"):
                await running
        assert await asyncio.wait_for(child.wait(), 120) == 0


STOPS = """
import asyncio
import grpc
from podium.kit.rpc.stopping import Stopping

async def later(server, turns, grace):
    for _ in range(turns):
        await asyncio.sleep(0)
    await server.stop(grace)

async def main():
    for turn in range(400):
        server = grpc.aio.server()
        server.add_insecure_port("127.0.0.1:0")
        await server.start()
        asked = Stopping(server)
        first = later(asked, 0, 5 * (turn % 2))
        await asyncio.gather(first, *(later(asked, turn % n, 0) for n in (5, 7, 11)))

asyncio.run(main())
"""


async def test_a_server_that_several_stop_at_once_takes_no_process_with_it() -> None:
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", STOPS)
    assert await asyncio.wait_for(child.wait(), 200) == 0


async def test_a_service_that_cannot_start_says_why_and_exits_1() -> None:
    async with process("no-database") as child:
        record = await until(child.stderr, "registry cannot run: there is no database")
        assert record["reason"] == "NO_DATABASE"
        assert await asyncio.wait_for(child.wait(), 120) == 1


async def test_a_thread_that_hangs_cannot_hold_the_process() -> None:
    async with process("hung-thread") as child:
        await until(child.stderr, "serving")
        child.send_signal(signal.SIGTERM)
        await until(child.stderr, "stopped")
        assert await asyncio.wait_for(child.wait(), 120) == 1
