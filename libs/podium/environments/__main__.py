"""`python -m podium.environments serve package.module:Class`: an environment as a service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import click

from podium.core.errors import PodiumError
from podium.environment.v1 import environment_service_pb2_grpc
from podium.environments.catalog import load_class
from podium.environments.serve import EnvironmentServicer
from podium.rpc import Server, ServerSettings, run_service


@click.group()
def cli() -> None:
    """Environments as services."""


@cli.command()
@click.argument("path")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=50060, show_default=True, help="gRPC port; 0 for a free one.")
@click.option("--health-port", default=0, help="Port of the health service; 0 for a free one.")
@click.option("--metrics-port", default=0, help="Port of the metrics; 0 for a free one.")
@click.option("--max-sessions", default=0, help="Most episodes at once; 0 for no limit.")
def serve(
    path: str, host: str, port: int, health_port: int, metrics_port: int, max_sessions: int
) -> None:
    """Serve PATH (package.module:Class) until SIGTERM."""
    try:
        kind = load_class(path)
    except PodiumError as error:
        raise click.UsageError(error.message) from error

    @asynccontextmanager
    async def build(server: Server) -> AsyncIterator[None]:
        server.add(
            environment_service_pb2_grpc.add_EnvironmentServiceServicer_to_server,
            EnvironmentServicer(kind, max_sessions),
            "podium.environment.v1.EnvironmentService",
        )
        yield

    settings = ServerSettings(
        host=host, port=port, health_port=health_port, metrics_port=metrics_port
    )
    run_service("environment", settings, build)


if __name__ == "__main__":
    cli()
