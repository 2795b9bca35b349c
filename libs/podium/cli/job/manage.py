"""`podium job list|get|pause|resume|cancel|delete`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from podium.cli.completers import job_argument
from podium.cli.connection import connected
from podium.cli.exits import Exit
from podium.cli.integers import Count
from podium.cli.output import emit_list, emit_one, note, output_option
from podium.cli.safe_text import visible

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
@job_argument
@output_option
@connected
async def get(client: AsyncClient, job: str, output: str) -> None:
    """Show a job, why it failed if it did, its last numbers, and why it cannot learn if so."""
    from podium.core.findings import open_findings

    found = await client.jobs.get(job)
    _show(found, output)
    # Programs read `podium job events`.
    if output == "table" and found.completed_steps:
        told = [(event.type, event.message) async for event in client.jobs.events(job)]
        for message in open_findings(told).values():
            note(f"warning: {visible(message)}")


@click.command(short_help="Stop a job after its step.")
@job_argument
@output_option
@connected
async def pause(client: AsyncClient, job: str, output: str) -> None:
    """Ask a job to stop after the step that it is in, so that 'resume' can go on from there."""
    _show(await client.jobs.pause(job), output)
    note(f"go on with: podium job resume {job}")


@click.command(short_help="Let a paused job go on.")
@job_argument
@click.option("--max-gpu-hours", type=float, help="A new budget.max_gpu_hours.")
@click.option("--max-judge-cost", type=float, help="A new budget.max_judge_cost.")
@click.option("--max-sampled-tokens", type=Count(1), help="A new budget.max_sampled_tokens.")
@click.option("--max-trainer-hours", type=float, help="A new budget.max_trainer_hours.")
@output_option
@connected
async def resume(client: AsyncClient, /, job: str, output: str, **budget: float | None) -> None:
    """Let a paused job go on from its last step.

    One that has paused as its budget is spent needs a greater one; what is not given of it stays.
    """
    changes = {name: value for name, value in budget.items() if value is not None}
    if not changes:
        _show(await client.jobs.resume(job), output)
        return
    new = (await client.jobs.get(job)).spec.budget
    for name, value in changes.items():
        setattr(new, name, value)
    _show(await client.jobs.resume(job, budget=new), output)


@click.command(short_help="Stop a job for good.")
@job_argument
@output_option
@connected
async def cancel(client: AsyncClient, job: str, output: str) -> None:
    """Ask a job to stop for good. Its checkpoints, episodes and report stay."""
    _show(await client.jobs.cancel(job), output)


@click.command(short_help="Delete a job that has ended.")
@job_argument
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
