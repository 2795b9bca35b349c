"""`python -m podium_gitops`: makes jobs of TrainingJob resources."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from podium.kit.kubernetes.api import connected
from podium.kit.rpc import Server, ServerSettings, load_settings, run_service
from podium.sdk import Addresses, AsyncClient
from pydantic import Field
from pydantic_settings import SettingsConfigDict

from podium_gitops.operator import Operator


class Settings(ServerSettings):
    """See the README of this service."""

    model_config = SettingsConfigDict(env_prefix="PODIUM_GITOPS_")

    health_port: int = Field(default=50067, ge=0, le=65535)
    metrics_port: int = Field(default=50077, ge=0, le=65535)

    controller_address: str = "127.0.0.1:50051"
    namespace: str = ""
    """Where the resources are; empty for its own namespace."""
    poll_seconds: float = Field(default=10.0, gt=0, le=3600)
    """How old a status may be; one call of ListJobs each, however many resources there are."""


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
