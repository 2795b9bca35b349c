"""`python -m podium_gitops`: makes jobs of TrainingJob resources."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from podium.kit.kubernetes.api import connected
from podium.kit.rpc import Server, load_settings, run_service
from podium.sdk import Addresses, AsyncClient

from podium_gitops.operator import Operator
from podium_gitops.settings import Settings


def main() -> None:
    """Runs until SIGTERM or SIGINT."""
    settings = load_settings(Settings)

    @asynccontextmanager
    async def operated(server: Server) -> AsyncIterator[None]:
        addresses = Addresses(
            controller=settings.controller_address,
            token=settings.peer_token(),
            tls=settings.tls(),
        )
        async with connected(settings.namespace) as api, AsyncClient(addresses) as client:
            operator = Operator(api, client.jobs, settings.poll_seconds)
            async with operator.running():
                yield

    run_service("gitops", settings, operated)


if __name__ == "__main__":
    main()
