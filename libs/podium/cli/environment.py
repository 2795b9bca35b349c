"""`podium env list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from podium.cli.connection import connected
from podium.cli.output import emit_list, output_option

if TYPE_CHECKING:
    from podium.sdk import AsyncClient


@click.group(short_help="List the environments to train on.")
def env() -> None:
    """The environments that a job can train on."""


@env.command("list")
@output_option
@connected
async def list_environments(client: AsyncClient, output: str) -> None:
    """List the built-in environments. A job may also name the address of a remote one."""
    from podium.cli.views import ENVIRONMENTS

    emit_list(await client.environments.list(), ENVIRONMENTS, output)
