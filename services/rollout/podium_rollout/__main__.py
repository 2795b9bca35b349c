"""`python -m podium_rollout`: the rollout service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from podium.kit.rpc import Server, load_settings, run_service
from podium.rollout.v1 import rollout_service_pb2_grpc

from podium_rollout.adapters.worker_metrics import WorkersRegistry
from podium_rollout.adapters.workers import Workers
from podium_rollout.front_servicer import FrontServicer
from podium_rollout.in_process import episodes
from podium_rollout.servicer import SERVICE
from podium_rollout.settings import Settings


def main() -> None:
    """Serves until SIGTERM or SIGINT."""
    settings = load_settings(Settings)
    if settings.workers == 1:
        run_service("rollout", settings, lambda server: episodes(server, settings))
    registry = WorkersRegistry()

    @asynccontextmanager
    async def front(server: Server) -> AsyncIterator[None]:
        workers = Workers(settings.workers, server.set_serving)
        registry.asks(workers.metrics)
        server.add(
            rollout_service_pb2_grpc.add_RolloutServiceServicer_to_server,
            FrontServicer(workers, settings.max_groups),
            SERVICE,
        )
        async with workers.running():
            yield

    run_service("rollout", settings, front, registry=registry)


if __name__ == "__main__":
    main()
