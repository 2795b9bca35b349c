"""Commands that talk to a Podium installation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click

from podium.cli.context_names import complete_contexts

if TYPE_CHECKING:
    from podium.sdk import AsyncClient

P = ParamSpec("P")
R = TypeVar("R")

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Data directory of 'podium up'. [default: PODIUM_DATA_DIR, else .podium here or above]",
)

address_option = click.option(
    "--address",
    metavar="HOST:PORT",
    default="",
    help="The controller. [default: PODIUM_ADDRESS, else the context's, else what 'podium up' "
    "runs here]",
)
context_option = click.option(
    "--context",
    metavar="NAME",
    default="",
    shell_complete=complete_contexts,
    help="What 'podium login' saved by this name. [default: PODIUM_CONTEXT, else the one in use]",
)


def connected(
    command: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, R]],
) -> Callable[..., R]:
    """Turns `async def command(client, …)` into a click callback that says where to."""

    @address_option
    @context_option
    @data_dir_option
    @functools.wraps(command)
    def callback(
        address: str, context: str, data_dir: Path | None, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        return run_client(
            address, context, data_dir, lambda client: command(client, *args, **kwargs)
        )

    return callback


def run_client(
    address: str,
    context: str,
    data_dir: Path | None,
    body: Callable[[AsyncClient], Coroutine[Any, Any, R]],
) -> R:
    """Runs `body` with a client on a fresh event loop; the rest is `locate`'s."""
    import asyncio

    from podium.sdk.client import AsyncClient
    from podium.sdk.connection.addresses import locate

    async def main() -> R:
        async with AsyncClient(locate(address, data_dir, context)) as client:
            return await body(client)

    return asyncio.run(main())
