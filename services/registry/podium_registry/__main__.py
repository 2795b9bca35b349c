"""`python -m podium_registry`: the registry service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from podium.core.errors import PodiumError
from podium.kit.rpc import Server, load_settings, run_service
from podium.kit.sql import Database
from podium.registry.v1 import registry_service_pb2_grpc

from podium_registry.adapters.blobs import Blobs, measure
from podium_registry.adapters.garbage_collector import GarbageCollector
from podium_registry.adapters.history import ChangeLog
from podium_registry.adapters.object_store import ObjectBlobStore
from podium_registry.adapters.staging import Staging
from podium_registry.adapters.states import States
from podium_registry.adapters.versions import Versions
from podium_registry.domain.metrics import watch_volume
from podium_registry.servicer import RegistryServicer
from podium_registry.settings import Settings

logger = logging.getLogger(__name__)

_MIGRATIONS = Path(__file__).parent / "migrations"


def main() -> None:
    """Serves until SIGTERM or SIGINT."""
    settings = load_settings(Settings)

    @asynccontextmanager
    async def build(server: Server) -> AsyncIterator[None]:
        database = Database(settings.resolved_database_url())
        await database.reachable(settings.database_wait_seconds)
        await database.migrate(_MIGRATIONS)
        store = ObjectBlobStore(settings.resolved_store_url())
        staging = await asyncio.to_thread(Staging, settings.data_dir / "uploads")
        blobs = Blobs(database, store, staging, max_bytes=settings.max_blob_bytes)
        collector = GarbageCollector(
            database,
            store,
            staging,
            grace_seconds=settings.gc_grace_seconds,
            upload_ttl_seconds=settings.upload_ttl_seconds,
        )
        history = ChangeLog(database, settings.watch_poll_seconds)
        server.add(
            registry_service_pb2_grpc.add_RegistryServiceServicer_to_server,
            RegistryServicer(
                blobs,
                Versions(database, history, blobs),
                States(database, history, blobs),
                history,
                collector,
                upload_idle_seconds=settings.upload_idle_seconds,
            ),
            "podium.registry.v1.RegistryService",
        )
        await measure(database)
        watch_volume(settings.data_dir)
        collecting = asyncio.create_task(_collect_for_ever(collector, settings.gc_interval_seconds))
        try:
            yield
        finally:
            collecting.cancel()
            with suppress(asyncio.CancelledError):
                await collecting
            await database.close()

    run_service("registry", settings, build)


async def _collect_for_ever(collector: GarbageCollector, interval_seconds: float) -> None:
    while interval_seconds:
        await asyncio.sleep(interval_seconds)
        try:
            count, freed = await collector.collect()
            logger.info("garbage collected", extra={"blobs": count, "bytes": freed})
        except PodiumError as error:
            logger.warning("garbage collection failed: %s", error.message)
        except Exception:
            logger.exception("garbage collection failed")


if __name__ == "__main__":
    main()
