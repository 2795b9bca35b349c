"""A service of test doubles as a process: `python -m support.drained_service [FAULT]`."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from podium.core.errors import FailedPreconditionError
from podium.kit.rpc import (
    Server,
    ServerSettings,
    run_service,
    service,
)
from support.rpc_doubles import add_doubles


@asynccontextmanager
async def build(server: Server) -> AsyncIterator[None]:
    """Adds the doubles, after the fault that was asked for."""
    match sys.argv[1:]:
        case ["slow-start"]:
            print("building", flush=True)
            await asyncio.sleep(600)
        case ["no-database"]:
            raise FailedPreconditionError("there is no database", reason="NO_DATABASE")
        case ["hung-thread"]:
            threading.Thread(target=time.sleep, args=(600,)).start()
    add_doubles(server)
    yield
    print("released", flush=True)


if __name__ == "__main__":
    drain = 30
    if "hung-thread" in sys.argv:
        drain = 0
        # Long enough to stop in, and no longer: this test waits for all of it.
        service._AFTER_DRAIN_SECONDS = 3.0
    run_service(
        "registry", ServerSettings(log_format="json", log_level="DEBUG", drain_seconds=drain), build
    )
