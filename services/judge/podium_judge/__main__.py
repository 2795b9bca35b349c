"""`python -m podium_judge`: the judge service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from podium.chat import Transport, guard
from podium.judge.v1 import judge_service_pb2_grpc
from podium.kit.rpc import Server, run_service

from podium_judge.servicer import JudgeServicer
from podium_judge.settings import Settings


def main() -> None:
    """Serves until SIGTERM or SIGINT."""
    settings = Settings()

    @asynccontextmanager
    async def build(server: Server) -> AsyncIterator[None]:
        limits = httpx.Limits(max_connections=settings.max_concurrent_calls + 4)
        hooks = {"request": [guard(settings.allowed_networks, "judge")]}
        async with httpx.AsyncClient(
            timeout=None, transport=Transport("judge", limits), event_hooks=hooks
        ) as client:
            server.add(
                judge_service_pb2_grpc.add_JudgeServiceServicer_to_server,
                JudgeServicer(settings, client),
                "podium.judge.v1.JudgeService",
            )
            yield

    run_service("judge", settings, build)


if __name__ == "__main__":
    main()
