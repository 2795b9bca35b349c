"""`python -m podium_trainer`: the trainer service."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from podium.registry_client import RegistryClient
from podium.rpc import Server, load_settings, run_service
from podium.trainer.v1 import trainer_service_pb2_grpc

from podium_trainer.memory import keep_freed_memory
from podium_trainer.settings import Settings


def main() -> None:
    """Serves until SIGTERM or SIGINT."""
    settings = load_settings(Settings)
    keep_freed_memory()

    @asynccontextmanager
    async def build(server: Server) -> AsyncIterator[None]:
        # torch and Transformers load in seconds; the probes answer meanwhile.
        await asyncio.to_thread(importlib.import_module, "podium_trainer.session")
        from podium_trainer.servicer import TrainerServicer
        from podium_trainer.session import Compute
        from podium_trainer.versions import RegistryVersions
        from podium_trainer.worker import Worker

        registry = RegistryClient(settings.registry_address, token=settings.peer_token())
        compute = Compute(
            row_tokens=settings.row_tokens,
            bfloat16=settings.bfloat16,
            attention=settings.attention,
        )
        worker = Worker(RegistryVersions(registry), compute, threads=settings.threads)
        server.add(
            trainer_service_pb2_grpc.add_TrainerServiceServicer_to_server,
            TrainerServicer(worker),
            "podium.trainer.v1.TrainerService",
        )
        try:
            yield
        finally:
            await worker.stop()
            await registry.close()

    run_service("trainer", settings, build)


if __name__ == "__main__":
    main()
