"""`podium env list` and `podium env serve`; `podium env check` has a module of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from podium.cli.connection import connected
from podium.cli.environment_check import check
from podium.cli.environment_class import environment_class, scenarios_here
from podium.cli.output import emit_list, output_option

if TYPE_CHECKING:
    from podium.sdk import AsyncClient


@click.group(short_help="List, check and serve environments to train on.")
def env() -> None:
    """The environments that a job can train on."""


env.add_command(check)


@env.command("list")
@output_option
@connected
async def list_environments(client: AsyncClient, output: str) -> None:
    """List the built-in environments. A job may also name the address of a remote one."""
    from podium.cli.views import ENVIRONMENTS

    emit_list(await client.environments.list(), ENVIRONMENTS, output)


@env.command()
@click.argument("path")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=50060, show_default=True, help="gRPC port; 0 for a free one.")
@click.option("--health-port", default=0, help="Port of the health service; 0 for a free one.")
@click.option("--metrics-port", default=0, help="Port of the metrics; 0 for a free one.")
@click.option(
    "--max-sessions",
    type=click.IntRange(min=0),
    default=0,
    help="Most episodes at once; more wait for their turn. 0 for no limit.",
)
@click.option(
    "--idle-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=3600.0,
    show_default=True,
    help="Close an episode that nobody talked to for so long.",
)
@click.option(
    "--resume-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Hold an episode for so long when its connection breaks.",
)
def serve(
    path: str,
    host: str,
    port: int,
    health_port: int,
    metrics_port: int,
    max_sessions: int,
    idle_seconds: float,
    resume_seconds: float,
) -> None:
    """Serve PATH (task.py, package.module:Class, or a built-in name) until SIGTERM.

    Modules of this folder can be imported, also by what a job's options name. Jobs may name files
    of scenarios below this folder, or below PODIUM_SCENARIOS_DIR.
    """
    from podium.core.errors import PodiumError
    from podium.environments.serving.server import serve as run
    from podium.environments.serving.sessions import SessionLimits
    from podium.kit.rpc import ServerSettings

    try:
        kind = environment_class(path)
    except PodiumError as error:
        raise click.UsageError(error.message) from error
    scenarios_here()
    run(
        kind,
        ServerSettings(host=host, port=port, health_port=health_port, metrics_port=metrics_port),
        SessionLimits(
            max_sessions=max_sessions, idle_seconds=idle_seconds, resume_seconds=resume_seconds
        ),
    )
