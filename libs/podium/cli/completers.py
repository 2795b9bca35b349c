"""What a shell may complete besides commands and options: jobs and their metrics.

Whoever types waits for it, so it takes a second at most; and it never says a word, whatever
happens: it would stand in the middle of the line that is typed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from podium.sdk import AsyncClient

SECONDS = 1.0
_MOST = 100


def complete_jobs(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Ids of jobs that begin so, newest first, each with its state."""
    from click.shell_completion import CompletionItem

    given = ctx.params.get(param.name or "")
    taken = given if isinstance(given, tuple) else ()

    async def names(client: AsyncClient) -> list[CompletionItem]:
        from podium.cli.views import state

        found: list[CompletionItem] = []
        async for job in client.jobs.list():
            if job.id.startswith(incomplete) and job.id not in taken:
                found.append(CompletionItem(job.id, help=state(job)))
            if len(found) == _MOST:
                break
        return found

    return _asked(ctx, names)


def complete_metrics(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of the metrics that the jobs named so far have."""
    from click.shell_completion import CompletionItem

    # Before an option that has no value yet, click has not told arguments apart.
    jobs: Sequence[str] = ctx.params.get("jobs") or ctx.args

    async def names(client: AsyncClient) -> list[CompletionItem]:
        known: set[str] = set()
        for job in jobs:
            known.update((await client.jobs.get(job)).latest_metrics)
        return [CompletionItem(name) for name in sorted(known) if name.startswith(incomplete)]

    return _asked(ctx, names) if jobs else []


job_argument = click.argument("job", shell_complete=complete_jobs)


def _asked(
    ctx: click.Context, body: Callable[[AsyncClient], Coroutine[Any, Any, list[CompletionItem]]]
) -> list[CompletionItem]:
    """What the installation of the line typed so far answers in time; nothing otherwise."""
    import asyncio

    # gRPC's own C library would write to the terminal.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from podium.cli.connection import run_client

        async def within(client: AsyncClient) -> list[CompletionItem]:
            async with asyncio.timeout(SECONDS):
                return await body(client)

        options = ctx.params
        return run_client(
            options.get("address") or "",
            options.get("context") or "",
            options.get("data_dir"),
            within,
        )
    except Exception:
        return []
