"""`podium job list|get|pause|resume|cancel|delete`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from podium.cli.connection import connected
from podium.cli.exits import Exit
from podium.cli.output import emit_list, emit_one, note, output_option

if TYPE_CHECKING:
    from podium.jobs.v1 import job_service_pb2 as pb
    from podium.sdk import AsyncClient

STATES = (
    "queued",
    "running",
    "pausing",
    "paused",
    "cancelling",
    "succeeded",
    "failed",
    "cancelled",
)


@click.command("list", short_help="List jobs, newest first.")
@click.option("--state", "states", type=click.Choice(STATES), multiple=True, help="Only these.")
@click.option("--project", default="", help="Only this project's.")
@output_option
@connected
async def list_jobs(client: AsyncClient, states: Sequence[str], project: str, output: str) -> None:
    """List jobs, newest first."""
    from podium.cli.views import JOBS
    from podium.jobs.v1 import job_service_pb2 as pb

    wanted = [pb.JobState.Value(f"JOB_STATE_{state.upper()}") for state in states]
    found = [job async for job in client.jobs.list(wanted, project=project)]
    emit_list(found, JOBS, output)


@click.command(short_help="Show a job.")
@click.argument("job")
@output_option
@connected
async def get(client: AsyncClient, job: str, output: str) -> None:
    """Show a job, why it failed if it did, and its last numbers."""
    _show(await client.jobs.get(job), output)


@click.command(short_help="Stop a job after its step.")
@click.argument("job")
@output_option
@connected
async def pause(client: AsyncClient, job: str, output: str) -> None:
    """Ask a job to stop after the step that it is in, so that 'resume' can go on from there."""
    _show(await client.jobs.pause(job), output)
    note(f"go on with: podium job resume {job}")


@click.command(short_help="Let a paused job go on.")
@click.argument("job")
@output_option
@connected
async def resume(client: AsyncClient, job: str, output: str) -> None:
    """Let a paused job go on from its last step."""
    _show(await client.jobs.resume(job), output)


@click.command(short_help="Stop a job for good.")
@click.argument("job")
@output_option
@connected
async def cancel(client: AsyncClient, job: str, output: str) -> None:
    """Ask a job to stop for good. Its checkpoints, episodes and report stay."""
    _show(await client.jobs.cancel(job), output)


@click.command(short_help="Delete a job that has ended.")
@click.argument("job")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@connected
async def delete(client: AsyncClient, job: str, yes: bool) -> int:
    """Delete a job that has ended, with its events, steps and episodes; its checkpoints stay."""
    if not yes and not click.confirm(f"Delete job {job} and its records?", err=True):
        return Exit.FAILED
    await client.jobs.delete(job)
    note(f"deleted {job}; its checkpoints stay: podium checkpoint list {job}")
    return Exit.OK


def _show(job: pb.Job, output: str) -> None:
    from podium.cli.views import JOB

    emit_one(job, JOB, output)
