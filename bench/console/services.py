"""A controller and a console as they are deployed, around a job in the controller's store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.rollout.throughput import free_port, listens, start

_NOWHERE = "127.0.0.1:1"


@asynccontextmanager
async def services(folder: Path) -> AsyncIterator[str]:
    """The console's address. The controller stands by: whoever filled its database leads."""
    port, web = free_port(), free_port()
    both = {"HEALTH_PORT": "0", "METRICS_PORT": "0", "LOG_LEVEL": "ERROR"}
    others = {f"{name}_ADDRESS": _NOWHERE for name in ("INFERENCE", "REGISTRY", "ROLLOUT")}
    controller = {"PORT": str(port), "DATA_DIR": str(folder)}
    controller |= {f"{name}_ADDRESS": _NOWHERE for name in ("JUDGE", "TRAINER")}
    console = {"PORT": str(web), "CONTROLLER_ADDRESS": f"127.0.0.1:{port}"}
    processes = [
        start([f"podium_{name}"], _named(name, {**both, **others, **own}))
        for name, own in (("controller", controller), ("console", console))
    ]
    try:
        await asyncio.gather(listens(port), listens(web))
        yield f"http://127.0.0.1:{web}"
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _named(service: str, settings: dict[str, str]) -> dict[str, str]:
    return {f"PODIUM_{service.upper()}_{name}": value for name, value in settings.items()}
