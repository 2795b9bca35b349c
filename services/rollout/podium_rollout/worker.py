"""`python -m podium_rollout.worker SOCKET`: a process of a rollout service that has several.

It has the settings of the whole service, takes calls from its parent alone, and ends when its
parent does.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from podium.kit.rpc import Server, load_settings, run_service

from podium_rollout.adapters.worker_metrics import shown
from podium_rollout.adapters.workers import METRICS
from podium_rollout.in_process import episodes
from podium_rollout.settings import Settings


def main() -> None:
    """Serves until SIGTERM, or until the standard input ends."""
    settings = load_settings(Settings)

    @asynccontextmanager
    async def build(server: Server) -> AsyncIterator[None]:
        server.add(_add_metrics, None, METRICS.rpartition("/")[0].lstrip("/"))
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), _read, server)
        try:
            async with episodes(server, settings):
                yield
        finally:
            loop.remove_reader(sys.stdin.fileno())

    run_service("rollout", settings, build, socket=Path(sys.argv[1]))


def _read(server: Server) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        server.request_stop()


def _add_metrics(_: Any, server: grpc.aio.Server) -> None:
    async def answer(request: bytes, context: Any) -> bytes:
        return shown()

    service, _, method = METRICS.lstrip("/").rpartition("/")
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        method: grpc.unary_unary_rpc_method_handler(answer)
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))


if __name__ == "__main__":
    main()
