"""`python -m podium_tracking`: tells trackers of jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from podium.kit.rpc import Server, load_settings, run_service
from podium.sdk import Addresses, AsyncClient

from podium_tracking.adapters.secrets import Secrets
from podium_tracking.settings import Settings
from podium_tracking.supervisor import TrackingSupervisor


def main() -> None:
    """Runs until SIGTERM or SIGINT."""
    settings = load_settings(Settings)

    @asynccontextmanager
    async def tracked(server: Server) -> AsyncIterator[None]:
        addresses = Addresses(
            controller=settings.controller_address,
            token=settings.peer_token(),
            tls=settings.tls(),
        )
        async with AsyncClient(addresses) as client:
            supervisor = TrackingSupervisor(client.jobs, settings, Secrets(settings.secrets_dir))
            async with supervisor.running():
                yield

    run_service("tracking", settings, tracked)


if __name__ == "__main__":
    main()
