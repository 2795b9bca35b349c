"""A test double of a Podium service: a health port and a wish how to behave.

`write_packages` makes `podium_<service>` packages that shadow the real ones
on PYTHONPATH. `FAKE_<SERVICE>` chooses: `refuse` exits 3 at once, `crash`
dies a moment after it serves, `stubborn` ignores SIGTERM, `grandchild` starts
a process of its own and writes its pid to `$FAKE_PID_FILE`, `mute` never
serves.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

SERVICES = ("controller", "registry", "inference", "rollout", "judge", "trainer")


def write_packages(folder: Path, services: Iterable[str] = SERVICES) -> dict[str, str]:
    """Writes the packages and returns the environment that makes them win."""
    for name in services:
        package = folder / f"podium_{name}"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(
            f"from support.fake_service import main\n\nmain({name!r})\n"
        )
    tests = Path(__file__).resolve().parents[1]
    return {"PYTHONPATH": os.pathsep.join((str(folder), str(tests)))}


def main(name: str) -> None:
    """Runs the double."""
    print(
        json.dumps({"time": "2026-01-02T03:04:05+00:00", "level": "info", "message": f"{name} up"}),
        flush=True,
    )
    behaviour = os.environ.get(f"FAKE_{name.upper()}", "")
    if behaviour == "refuse":
        print("the database URL is wrong", file=sys.stderr, flush=True)
        sys.exit(3)
    asyncio.run(_serve(name, behaviour))


async def _serve(name: str, behaviour: str) -> None:
    import grpc
    from grpc_health.v1 import health, health_pb2, health_pb2_grpc
    from podium.local.launcher.layout import READINESS

    stop = asyncio.Event()
    if behaviour == "grandchild":
        _start_grandchild()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, (lambda: None) if behaviour == "stubborn" else stop.set)
    server = grpc.aio.server()
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = os.environ[f"PODIUM_{name.upper()}_HEALTH_PORT"]
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    status = health_pb2.HealthCheckResponse
    await servicer.set("", status.SERVING)
    if behaviour != "mute":
        await servicer.set(READINESS[name], status.SERVING)
    if behaviour == "crash":
        await asyncio.sleep(0.5)
        os.kill(os.getpid(), signal.SIGABRT)
    await stop.wait()
    await server.stop(0)


def _start_grandchild() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(os.environ["FAKE_PID_FILE"]).write_text(str(process.pid))
