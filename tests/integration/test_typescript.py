"""The client in TypeScript: generated, checked by its compiler, run against a real controller."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import json_format
from podium.jobs.v1 import job_service_pb2 as pb
from podium.sdk import Addresses
from support.console import console
from support.controlled import Client, small_job
from support.controlled_fixtures import client, fleet, registry
from support.cutting_proxy import CuttingProxy
from support.fake_podium import fake_podium
from support.fleet import Fleet
from support.hold import Hold

__all__ = ["client", "fleet", "registry"]

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "typescript"
NODE, NPM = shutil.which("node"), shutil.which("npm")
PACKAGES = EXAMPLE / "node_modules"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not (NODE and NPM and (PACKAGES / "@connectrpc/connect-node").is_dir()),
        reason="needs Node.js, npm and, in examples/typescript, npm install: `make adapters`",
    ),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example as `make typescript` builds it, of the contract as it is here."""
    root = tmp_path_factory.mktemp("typescript")
    here = root / "examples" / "typescript"
    made = shutil.ignore_patterns("node_modules", "gen", "dist")
    shutil.copytree(EXAMPLE, here, ignore=made)
    shutil.copytree(ROOT / "proto", root / "proto")
    (here / "node_modules").symlink_to(PACKAGES)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    assert NPM is not None
    command = [NPM, "run", "--silent", "build"]
    done = subprocess.run(
        command, cwd=here, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return here


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A job of two steps that the fleet can run."""
    path = tmp_path / "spec.json"
    path.write_text(json_format.MessageToJson(small_job(2)))
    return path


class Run:
    """The example, as it runs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> str:
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode().strip()

    async def end(self) -> tuple[list[str], str, int | None]:
        """What else it says, what is wrong, and its exit code."""
        said, wrong = await self._process.communicate()
        return said.decode().splitlines(), wrong.decode(), self._process.returncode

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()


async def submit(built: Path, address: str, spec: Path, token: str = "") -> Run:
    assert NODE is not None
    process = await asyncio.create_subprocess_exec(
        *(NODE, "dist/submit.js", address, str(spec)),
        cwd=built,
        env={**os.environ, "PODIUM_TOKEN": token},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    return Run(process)


def assert_followed(said: list[str]) -> str:
    """Every event once and in order, to the end; gives the job's id."""
    *events, last = [line.split(" ", 2) for line in said]
    job_id = last[0]
    assert [each[:2] for each in events] == [[job_id, str(n + 1)] for n in range(len(events))]
    steps = [each[2] for each in events if "(reward " in each[2]]
    assert (len(steps), last[1]) == (2, "succeeded")
    return job_id


@pytest.mark.parametrize("way", ["grpc", "http"])
async def test_a_job_is_submitted_and_followed(
    way: str, built: Path, spec: Path, client: Client, fleet: Fleet
) -> None:
    here = Addresses(client.address, fleet.registry.address, *[client.address] * 3, source="test")
    async with console(here, call_seconds=60) as served:
        address = f"grpc://{client.address}" if way == "grpc" else served.url
        said, wrong, code = await (await submit(built, address, spec)).end()
    assert (code, wrong) == (0, "")
    job = await client.get(assert_followed(said))
    assert (job.state, job.completed_steps) == (pb.JOB_STATE_SUCCEEDED, 2)


@pytest.mark.parametrize("way", ["grpc", "http"])
async def test_a_watch_that_breaks_goes_on_where_it_was(
    way: str, built: Path, spec: Path, client: Client, fleet: Fleet
) -> None:
    saving = fleet.at = Hold("save:begin", "1")
    here = Addresses(client.address, fleet.registry.address, *[client.address] * 3, source="test")
    async with console(here, call_seconds=60) as served:
        behind = client.address if way == "grpc" else served.url
        proxy = CuttingProxy(int(behind.rpartition(":")[2]))
        async with proxy.running():
            run = await submit(built, f"{way}://{proxy.address}", spec)
            try:
                first = await run.line()
                await saving.reached()
                proxy.cut()
                saving.release()
                said, wrong, code = await run.end()
            finally:
                run.kill()
    assert (code, wrong) == (0, "")
    assert_followed([first, *said])


async def test_what_is_wrong_is_said_and_the_token_is_ones_own(
    built: Path, spec: Path, tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text("mine\n")
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({"baseModel": "m", "training": {"steps": "-2"}}))
    async with fake_podium(auth_tokens_file=tmp_path / "tokens") as fake, console(fake) as served:
        fake.jobs.created_state = pb.JOB_STATE_SUCCEEDED
        for address in (f"grpc://{fake.address}", served.url):
            fake.jobs.known.clear()
            _, said, code = await (await submit(built, address, spec, "guess")).end()
            assert (code, "[unauthenticated]" in said) == (1, True), said
            _, said, code = await (await submit(built, address, wrong, "mine")).end()
            assert (code, "job.spec.training.steps: got -2" in said) == (1, True), said
            _, said, code = await (await submit(built, address, spec, "mine")).end()
            assert (code, said) == (0, "")
        _, said, code = await (await submit(built, "ftp://x", spec)).end()
        assert (code, "got ftp://" in said) == (1, True), said
