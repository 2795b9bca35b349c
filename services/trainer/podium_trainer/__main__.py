"""`python -m podium_trainer`: the trainer service."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from podium.kit.registry_client import RegistryClient
from podium.kit.rpc import Server, load_settings, run_service
from podium.kit.telemetry import setup_logging
from podium.trainer.v1 import trainer_service_pb2_grpc

from podium_trainer.adapters.memory import grow_gpu_segments, keep_freed_memory
from podium_trainer.adapters.openmp import prefer_intel_openmp
from podium_trainer.settings import Settings

if TYPE_CHECKING:
    from podium_trainer.learner.session import Compute

logger = logging.getLogger(__name__)


def main() -> None:
    """Serves until SIGTERM or SIGINT."""
    settings = load_settings(Settings)
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if settings.max_jobs > 1 and processes > 1:
        print(
            f"PODIUM_TRAINER_MAX_JOBS: got {settings.max_jobs} with {processes} processes, over "
            "which the base model is sharded with the job's adapter; allowed is 1",
            file=sys.stderr,
        )
        sys.exit(2)
    keep_freed_memory()
    grow_gpu_segments()
    prefer_intel_openmp()
    if settings.device == "cuda":
        _check_device(settings.device)
    if settings.products != "torch":
        _check_products(settings, processes)
    if int(os.environ.get("RANK", "0")):
        _follow(settings)
        return

    @asynccontextmanager
    async def build(server: Server) -> AsyncIterator[None]:
        # torch and Transformers load in seconds; the probes answer meanwhile.
        await asyncio.to_thread(importlib.import_module, "podium_trainer.learner.session")
        from podium_trainer.adapters.team import Team
        from podium_trainer.adapters.versions import RegistryVersions
        from podium_trainer.idle import stow_idle_jobs
        from podium_trainer.learner.parallel import join
        from podium_trainer.servicer import TrainerServicer
        from podium_trainer.worker import Worker

        registry = RegistryClient(
            settings.registry_address, token=settings.peer_token(), tls=settings.tls()
        )
        ranks = await asyncio.to_thread(
            join, settings.collective_timeout_seconds, device=settings.device
        )
        team = Team(ranks, _compute(settings), shares=settings.max_jobs > 1)
        worker = Worker(
            RegistryVersions(registry, ranks),
            team,
            threads=settings.threads,
            max_jobs=settings.max_jobs,
        )
        server.add(
            trainer_service_pb2_grpc.add_TrainerServiceServicer_to_server,
            TrainerServicer(worker),
            "podium.trainer.v1.TrainerService",
        )
        stowing = asyncio.create_task(stow_idle_jobs(worker, settings.idle_seconds))
        try:
            yield
        finally:
            stowing.cancel()
            await worker.stop()
            await registry.close()

    try:
        run_service("trainer", settings, build)
    except SystemExit as ended:
        # All is given up and told by now, and to take torch apart costs over a second of
        # computing. Processes in step end in the order that they do it in.
        if os.environ.get("WORLD_SIZE", "1") == "1":
            logging.shutdown()
            os._exit(ended.code if isinstance(ended.code, int) else 1)
        raise


def _check_device(device: str) -> None:
    from podium_trainer.learner.gpu import refusal

    if why := refusal(device):
        print(f"PODIUM_TRAINER_DEVICE: {why}", file=sys.stderr)
        sys.exit(2)


def _check_products(settings: Settings, processes: int) -> None:
    from podium_trainer.learner.products import Products, refusal

    why = refusal(Products(settings.products), settings.bfloat16, processes)
    if why:
        print(f"PODIUM_TRAINER_PRODUCTS: {why}", file=sys.stderr)
        sys.exit(2)


def _compute(settings: Settings) -> Compute:
    from podium_trainer.learner.products import Products
    from podium_trainer.learner.session import Compute

    return Compute(
        row_tokens=settings.row_tokens,
        bfloat16=settings.bfloat16,
        products=Products(settings.products),
        attention=settings.attention,
        tf32=settings.tf32,
    )


def _follow(settings: Settings) -> None:
    """A process of torchrun other than the first: no port, no registry, only its shard."""
    setup_logging(f"trainer-{os.environ['RANK']}", settings.log_level, settings.log_format)
    import torch

    from podium_trainer.adapters.team import follow
    from podium_trainer.adapters.versions import FollowerVersions
    from podium_trainer.learner.parallel import join, leave

    if settings.threads:
        torch.set_num_threads(settings.threads)
    try:
        ranks = join(settings.collective_timeout_seconds, device=settings.device)
        versions = FollowerVersions(
            settings.registry_address, settings.peer_token(), settings.tls(), ranks
        )
        follow(ranks, _compute(settings), versions)
        leave()
    except Exception:
        logger.exception("this process is out of step with the first; ending it")
        # Without waiting for anything of the group: its connections close, and the others see it.
        os._exit(1)


if __name__ == "__main__":
    main()
