"""The real registry and the real trainer as child processes, for tests."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from podium.trainer.v1 import trainer_service_pb2 as pb
from podium.types.v1 import trajectory_pb2
from support.forked_service import ForkedService, import_before
from support.processes import free_port

# The one worker that collects the trainers' tests imports this module.
import_before("support.imported_trainer")


@dataclass
class ServiceProcess:
    """A service that serves; `address` is its gRPC address."""

    process: ForkedService | subprocess.Popen[bytes]
    address: str
    metrics_port: int

    async def kill(self) -> None:
        """SIGKILL, and waits for the end."""
        self.process.kill()
        await self.ended()

    async def terminate(self) -> int:
        """SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        """Its exit status, once there is one."""
        return await asyncio.to_thread(self.process.wait, 60)


@asynccontextmanager
async def service(
    name: str,
    log: Path,
    environment: Mapping[str, str] | None = None,
    *,
    processes: int = 1,
    machines: int = 1,
    anew: bool = False,
) -> AsyncIterator[ServiceProcess]:
    """`podium_<name>` on free ports, its output in `log`: `python -m` where it is `anew`.

    More than one process are torchrun's; then `process` is the first machine's torchrun.
    """
    prefix = f"PODIUM_{name.upper()}_"
    ports = {f"{prefix}{kind}": "0" for kind in ("PORT", "HEALTH_PORT", "METRICS_PORT")}
    variables = {**os.environ, **ports, f"{prefix}LOG_FORMAT": "json", **(environment or {})}
    module = f"podium_{name}"
    started: list[ForkedService | subprocess.Popen[bytes]] = []
    with log.open("wb") as output:
        if processes == machines == 1 and not anew:
            started.append(ForkedService(module, variables, Path.cwd(), log))
        else:
            for launcher in _launchers(processes, machines):
                command = [sys.executable, "-m", *launcher, module]
                started.append(
                    subprocess.Popen(command, env=variables, stdout=output, stderr=output)
                )
    try:
        yield await _when_serving(started[0], log)
    finally:
        for process in started:
            process.kill()
            await asyncio.to_thread(process.wait)


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


async def _when_serving(
    process: ForkedService | subprocess.Popen[bytes], log: Path
) -> ServiceProcess:
    # torch alone loads for minutes on a machine that does much else.
    for _ in range(4000):
        text = await asyncio.to_thread(log.read_text, errors="replace")
        address = re.search(r'"address": ?"([^"]+)"', text)
        metrics = re.search(r'"metrics_port": ?(\d+)', text)
        if address and metrics:
            return ServiceProcess(process, address[1], int(metrics[1]))
        if process.poll() is not None:
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
