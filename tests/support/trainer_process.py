"""The real registry and the real trainer as child processes, for tests."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from podium.trainer.v1 import trainer_service_pb2 as pb
from podium.types.v1 import trajectory_pb2
from support.processes import free_port


@dataclass
class ServiceProcess:
    """A service that serves; `address` is its gRPC address."""

    process: asyncio.subprocess.Process
    address: str
    metrics_port: int

    async def kill(self) -> None:
        """SIGKILL, and waits for the end."""
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    async def terminate(self) -> int:
        """SIGTERM; returns the exit status."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), 60)


@asynccontextmanager
async def service(
    name: str,
    log: Path,
    environment: Mapping[str, str] | None = None,
    *,
    processes: int = 1,
    machines: int = 1,
) -> AsyncIterator[ServiceProcess]:
    """`python -m podium_<name>` on free ports; its output goes to `log`.

    More than one process are torchrun's; then `process` is the first machine's torchrun.
    """
    prefix = f"PODIUM_{name.upper()}_"
    ports = {f"{prefix}{kind}": "0" for kind in ("PORT", "HEALTH_PORT", "METRICS_PORT")}
    started: list[asyncio.subprocess.Process] = []
    with log.open("wb") as output:
        for launcher in _launchers(processes, machines):
            started.append(
                await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    *launcher,
                    f"podium_{name}",
                    env={
                        **os.environ,
                        **ports,
                        f"{prefix}LOG_FORMAT": "json",
                        **(environment or {}),
                    },
                    stdout=output,
                    stderr=output,
                )
            )
    try:
        yield await _when_serving(started[0], log)
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
                await process.wait()


def _launchers(processes: int, machines: int) -> list[list[str]]:
    """What starts the service's module, for each machine; all of them are this one."""
    if processes == machines == 1:
        return [[]]
    torchrun = ["torch.distributed.run", f"--nproc-per-node={processes}"]
    if machines == 1:
        return [[*torchrun, "--standalone", "-m"]]
    port = f"--master-port={free_port()}"
    together = [f"--nnodes={machines}", "--master-addr=127.0.0.1", port]
    return [[*torchrun, *together, f"--node-rank={rank}", "-m"] for rank in range(machines)]


async def _when_serving(process: asyncio.subprocess.Process, log: Path) -> ServiceProcess:
    # torch alone loads for minutes on a machine that does much else.
    for _ in range(4000):
        text = await asyncio.to_thread(log.read_text, errors="replace")
        address = re.search(r'"address": ?"([^"]+)"', text)
        metrics = re.search(r'"metrics_port": ?(\d+)', text)
        if address and metrics:
            return ServiceProcess(process, address[1], int(metrics[1]))
        if process.returncode is not None:
            break
        await asyncio.sleep(0.1)
    raise AssertionError(f"the service did not start:\n{text}")


async def step_messages(
    job_id: str, step: int, groups: Sequence[trajectory_pb2.Group]
) -> AsyncIterator[pb.StepRequest]:
    """What a controller streams."""
    yield pb.StepRequest(header=pb.StepHeader(job_id=job_id, step=step))
    for group in groups:
        yield pb.StepRequest(group=group)
