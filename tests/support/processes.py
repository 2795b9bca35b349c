"""Services as processes that a test starts, kills and starts again."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from support.folders import service_folder
from support.forked_service import ForkedService

if TYPE_CHECKING:
    from support.fleet import Fleet


def free_port() -> int:
    """A port that was free a moment ago, and that no other process is given by this function."""
    for port in _PORTS:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


def claimed(ports: range, count: int) -> range:
    """So many of these ports, which are this process's to its end, whatever runs beside it.

    None of them is taken by that: a service takes its port seconds after it was found free, when
    the workers and other runs of a machine have long looked for theirs.
    """
    for first in ports[::count]:
        # Of UDP, which no service speaks: the kernel gives it back however this process ends.
        claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            claim.bind(("127.0.0.1", first))
        except OSError:
            claim.close()
            continue
        _CLAIMS.append(claim)
        return range(first, first + count)
    raise AssertionError(f"all ports of {ports} are claimed")


_CLAIMS: list[socket.socket] = []
# Fifty at a time, as they are asked for; neither the kernel nor a launcher gives any of them.
_PORTS = itertools.chain.from_iterable(iter(lambda: claimed(range(10000, 20000), 50), range(0)))


class RegistryProcess:
    """The real registry as a process, which keeps its folder and port over its deaths."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self._health, self._metrics = free_port(), free_port()
        self._process: ForkedService | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def metrics_address(self) -> str:
        return f"127.0.0.1:{self._metrics}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self, tokens: Path | None = None) -> None:
        """With `tokens`, a file, it takes no other."""
        environment = {
            "PODIUM_REGISTRY_PORT": str(self.port),
            "PODIUM_REGISTRY_HEALTH_PORT": str(self._health),
            "PODIUM_REGISTRY_METRICS_PORT": str(self._metrics),
            "PODIUM_REGISTRY_DATA_DIR": str(self._folder / "registry"),
        }
        if tokens is not None:
            environment["PODIUM_REGISTRY_AUTH_TOKENS_FILE"] = str(tokens)
        self._process = start_process("podium_registry", environment, self._folder)
        await wait_for_port(self.port, self._process)

    def object_of(self, digest: str) -> Path:
        """Where it keeps a blob."""
        name = digest.removeprefix("sha256:")
        return self._folder / "registry" / "blobs" / "sha256" / name[:2] / name

    async def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


def running_registry() -> Iterator[RegistryProcess]:
    """A registry for the tests of a module: it takes most of a second to start."""
    folder = service_folder("podium-registry-")
    registry = RegistryProcess(folder)
    try:
        asyncio.run(registry.start())
        yield registry
    finally:
        asyncio.run(registry.kill())
        shutil.rmtree(folder, ignore_errors=True)


class ControllerProcess:
    """The controller as a process of its own, to be killed."""

    def __init__(
        self,
        fleet: Fleet,
        database_url: str = "",
        name: str = "controller",
        lease_seconds: float = 3.0,
    ) -> None:
        """`lease_seconds` is for how long it leads unless it says that it still does."""
        self._fleet = fleet
        self._lease_seconds = lease_seconds
        self._folder = fleet.folder / name
        self._folder.mkdir()
        self._url = database_url
        self._ports = [free_port() for _ in range(3)]
        self.process: ForkedService | subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._ports[0]}"

    async def start(self, *, anew: bool = False) -> None:
        """As `python -m` where it is `anew`: its sets have another order than before."""
        port, health, metrics = self._ports
        environment = {
            "PODIUM_CONTROLLER_PORT": str(port),
            "PODIUM_CONTROLLER_HEALTH_PORT": str(health),
            "PODIUM_CONTROLLER_METRICS_PORT": str(metrics),
            "PODIUM_CONTROLLER_DATA_DIR": str(self._folder),
            "PODIUM_CONTROLLER_DATABASE_URL": self._url,
            "PODIUM_CONTROLLER_LEASE_SECONDS": str(self._lease_seconds),
            "PODIUM_CONTROLLER_POLL_SECONDS": "0.1",
            **self._fleet.variables(),
        }
        start = start_anew if anew else start_process
        self.process = start("podium_controller", environment, self._folder)
        await wait_for_port(port, self.process)

    def kill(self) -> None:
        """SIGKILL, and gone when it returns."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Any other signal."""
        assert self.process is not None
        self.process.send_signal(number)

    async def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self.process is not None
        self.process.terminate()
        return await asyncio.to_thread(self.process.wait, 120)

    async def leads(self) -> bool:
        """Whether it is the one that runs the jobs, as its metrics tell it."""
        async with httpx.AsyncClient(timeout=60) as client:
            reply = await client.get(f"http://127.0.0.1:{self._ports[2]}/metrics")
        return "podium_controller_leader 1.0" in reply.text

    def stored_groups(self, job_id: str) -> set[str]:
        """The ids of the groups in its SQLite database."""
        database = sqlite3.connect(self._folder / "controller.db")
        try:
            found = database.execute("select id from trajectory_groups where job_id = ?", (job_id,))
            return {group_id for (group_id,) in found}
        finally:
            database.close()


def start_process(module: str, environment: dict[str, str], folder: Path) -> ForkedService:
    """The service as `python -m module` runs it, logging into the folder."""
    return ForkedService(module, {**os.environ, **environment}, folder, folder / f"{module}.log")


def start_anew(module: str, environment: dict[str, str], folder: Path) -> subprocess.Popen[bytes]:
    """The same, and not forked."""
    with (folder / f"{module}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", module],
            env={**os.environ, **environment},
            cwd=folder,
            stdout=log,
            stderr=log,
        )


async def wait_for_port(port: int, process: ForkedService | subprocess.Popen[bytes]) -> None:
    """Returns when something listens."""
    for _ in range(1800):
        assert process.poll() is None, f"the process ended with {process.returncode}"
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
    raise AssertionError(f"nothing listens on port {port}")
