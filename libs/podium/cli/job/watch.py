"""`podium job watch`, and what `submit --follow` does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from podium.cli.completers import job_argument
from podium.cli.connection import connected
from podium.cli.exits import CliError, Exit
from podium.cli.integers import Count
from podium.cli.output import emit_one, note, output_option

if TYPE_CHECKING:
    from podium.sdk import AsyncClient


@click.command(short_help="Follow a job's progress.")
@job_argument
@click.option("--after", type=Count(), default=0, help="Skip events up to this.")
@click.option("--plot", is_flag=True, help="Draw the curves at the end.")
@click.option("--timeout", type=float, help="Seconds to follow at most.")
@output_option
@connected
async def watch(
    client: AsyncClient,
    job: str,
    after: int,
    plot: bool,
    timeout: float | None,  # noqa: ASYNC109 : an option's name
    output: str,
) -> int:
    """Follow a job until it ends, then print it. Ctrl-C leaves the job running.

    Progress goes to stderr. The exit code is 0 for a job that succeeded and 1
    for one that failed or was cancelled.
    """
    if plot:
        needs_plotext()
    return await follow_job(client, job, output=output, after=after, within=timeout, plot=plot)


def needs_plotext() -> None:
    """Says that --plot cannot draw, before a job is begun or waited for.

    Raises:
        FailedPreconditionError: plotext is not installed.
    """
    from podium.core.packages import needed

    needed("plotext", "podium[cli]", "--plot")


async def follow_job(
    client: AsyncClient,
    job_id: str,
    *,
    output: str,
    after: int = 0,
    quiet: bool = False,
    within: float | None = None,
    plot: bool = False,
) -> int:
    """Follows a job until it ends and prints it; returns the exit code.

    Raises:
        CliError: it did not end `within` that many seconds.
    """
    from podium.cli.progress import JobProgress
    from podium.cli.views import JOB
    from podium.jobs.v1 import job_service_pb2 as pb

    progress = JobProgress()
    try:
        async with asyncio.timeout(within):
            updates = client.jobs.watch(
                job_id,
                after_sequence=after,
                on_reconnect=None if quiet else lambda _, delay: progress.lost(delay),
            )
            async for update in updates:
                if not quiet:
                    progress.update(update)
            job = await client.jobs.get(job_id)
    except TimeoutError:
        progress.close()
        raise CliError(
            f"job {job_id} has not ended after {within:g} seconds; it keeps running",
            _how_to_go_on(job_id),
            Exit.TIMEOUT,
        ) from None
    except asyncio.CancelledError:
        progress.close()
        note(f"\njob {job_id} keeps running\n{_how_to_go_on(job_id)}")
        raise
    finally:
        progress.close()
    if plot and progress.steps:
        from podium.cli.html_report.plot import curves

        note(curves(progress.steps, progress.evaluations))
    emit_one(job, JOB, output)
    if job.state == pb.JOB_STATE_SUCCEEDED:
        note(f"read its report: podium job report {job_id} -o report.html")
        return Exit.OK
    if job.state == pb.JOB_STATE_FAILED:
        note(f"why: podium job events {job_id}; podium job logs {job_id}")
    return Exit.FAILED


def _how_to_go_on(job_id: str) -> str:
    return f"watch it again: podium job watch {job_id}\ncancel it:      podium job cancel {job_id}"
