"""An engine over two nodes: two processes of the inference service on this machine.

The second node has a folder of its own where the leader has its data, as two machines would, and
shares no memory with it: in a mount namespace, where this machine allows one.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from podium.kit.registry_client import RegistryClient
from podium.kit.rpc import connect
from podium.local.launcher import Launcher, LauncherConfig
from podium.local.launcher.config import RestartPolicy
from support.pool import TinyPool
from support.processes import free_port

_ALONE = 'mount --bind "$1" "$2" && mount -t tmpfs none /dev/shm && exec "$3" -m podium_inference'
_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")


def _refusal() -> str:
    try:
        done = subprocess.run([*_NAMESPACE, "true"], capture_output=True, text=True)
    except OSError as error:
        return str(error)
    return done.stderr.strip() if done.returncode else ""


REFUSAL = _refusal()
"""Why this machine makes no mount namespaces; empty where it does."""


class TwoNodes:
    """The pool as clients see it, and its second node."""

    def __init__(self, pool: TinyPool, worker: subprocess.Popen[bytes], folder: Path) -> None:
        """`folder` is what the second node sees as the data directory."""
        self.pool = pool
        self.worker = worker
        self.folder = folder

    def log(self) -> str:
        """What the second node logged."""
        return (self.folder.parent / "worker.log").read_text()


@asynccontextmanager
async def two_nodes(
    folder: Path, model: Path, mode: str, *, tensor: int, pipeline: int
) -> AsyncIterator[TwoNodes]:
    """Registry and leader under a launcher that restarts nothing, and the second node."""
    own = folder / "worker"
    own.mkdir(parents=True)
    config = LauncherConfig(
        data_dir=folder / "stack",
        port_base=0,
        services=("registry", "inference"),
        model=str(model),
        dtype="float32",
        weight_mode=mode,
        restart=RestartPolicy(max_restarts=0),
        environment={
            "PODIUM_INFERENCE_MAX_NUM_SEQS": "16",
            "PODIUM_INFERENCE_KV_CACHE_BYTES": str(128 << 20),
            "PODIUM_INFERENCE_NODES": "2",
            "PODIUM_INFERENCE_LEADER_ADDRESS": "127.0.0.1",
            "PODIUM_INFERENCE_POD_IP": "127.0.0.1",
            "PODIUM_INFERENCE_GROUP_PORT": str(free_port()),
            "PODIUM_INFERENCE_TENSOR_PARALLEL_SIZE": str(tensor),
            "PODIUM_INFERENCE_PIPELINE_PARALLEL_SIZE": str(pipeline),
        },
    )
    stack = Launcher(config)
    starting = asyncio.create_task(stack.start())
    try:
        environment = await _environment_of_leader(stack, starting)
        worker = _start(environment, own)
        try:
            await starting
            registry = RegistryClient(stack.address("registry"))
            channel = connect(stack.address("inference"))
            try:
                yield TwoNodes(TinyPool(stack, model, channel, registry), worker, own)
            finally:
                await channel.close()
                await registry.close()
        finally:
            await stack.stop()
            # The leader's end is its end, which takes vLLM some seconds.
            try:
                await asyncio.to_thread(worker.wait, 30)
            finally:
                worker.kill()
    finally:
        starting.cancel()


async def _environment_of_leader(stack: Launcher, starting: asyncio.Task[None]) -> dict[str, str]:
    async with asyncio.timeout(120):
        while True:
            await asyncio.sleep(0.05)
            assert not starting.done(), "the stack did not start"
            try:
                pid = stack.pid("inference")
                pairs = _environment_of(pid) if pid else {}
            except (KeyError, OSError):
                continue
            if "PODIUM_INFERENCE_NODES" in pairs:
                return pairs


def _environment_of(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/environ").read_bytes().decode()
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


def _start(environment: dict[str, str], own: Path) -> subprocess.Popen[bytes]:
    """The second node: as the leader, but for its rank and its ports."""
    environment["PODIUM_INFERENCE_NODE_RANK"] = "1"
    for name in ("PORT", "HEALTH_PORT", "METRICS_PORT", "HTTP_PORT"):
        environment[f"PODIUM_INFERENCE_{name}"] = str(free_port())
    data_dir = Path(environment["PODIUM_INFERENCE_DATA_DIR"])
    data_dir.mkdir(parents=True, exist_ok=True)
    plain = [sys.executable, "-m", "podium_inference"]
    alone = [*_NAMESPACE, _ALONE, "sh", str(own), str(data_dir), sys.executable]
    with (own.parent / "worker.log").open("wb") as log:
        return subprocess.Popen(
            plain if REFUSAL else alone,
            env={**os.environ, **environment},
            cwd=own.parent,
            stdout=log,
            stderr=log,
        )
