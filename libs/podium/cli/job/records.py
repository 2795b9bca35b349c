"""`podium job events|steps|evaluations|trajectories`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from podium.cli.completers import job_argument
from podium.cli.connection import connected
from podium.cli.output import emit_list, emit_one, note, output_option
from podium.cli.trajectory.listing import (
    evaluation_option,
    find,
    limit_option,
    print_list,
    step_option,
)

if TYPE_CHECKING:
    from podium.sdk import AsyncClient

_SKIPPED = "groups_skipped/"


@click.command(short_help="List what happened to a job.")
@job_argument
@output_option
@connected
async def events(client: AsyncClient, job: str, output: str) -> None:
    """List a job's events, oldest first."""
    from podium.cli.views import EVENTS

    emit_list([event async for event in client.jobs.events(job)], EVENTS, output)


@click.command(short_help="List a job's training steps.")
@job_argument
@output_option
@connected
async def steps(client: AsyncClient, job: str, output: str) -> None:
    """List a job's committed steps; -o json has every number of each."""
    from podium.cli.views import STEPS

    found = [step async for step in client.jobs.steps(job)]
    emit_list(found, STEPS, output)
    idle = [step for step in found if step.metrics.get("train/tokens_trained") == 0]
    if idle and output == "table":
        why = sorted({name for step in idle for name in step.metrics if name.startswith(_SKIPPED)})
        reasons = ", ".join(name.removeprefix(_SKIPPED) for name in why)
        note(
            f"warning: trained nothing: step {', '.join(str(step.number) for step in idle)}"
            f"{f' ({reasons})' if reasons else ''}\n"
            f"where it goes on so, what to change: podium job get {job}"
        )


@click.command(short_help="List a job's evaluations.")
@job_argument
@output_option
@connected
async def evaluations(client: AsyncClient, job: str, output: str) -> None:
    """List a job's evaluations with the 95 % interval of their success rate."""
    from podium.cli.views import EVALUATIONS

    emit_list([item async for item in client.jobs.evaluations(job)], EVALUATIONS, output)


@click.command(short_help="List or read a job's episodes.")
@job_argument
@click.argument("trajectory", required=False)
@step_option
@evaluation_option
@limit_option
@output_option
@connected
async def trajectories(
    client: AsyncClient,
    job: str,
    trajectory: str | None,
    step: int | None,
    evaluation: bool,
    limit: int,
    output: str,
) -> None:
    """List a job's episodes, or print the conversation of one, TRAJECTORY being its id.

    Training episodes are listed unless --evaluation is given. 'podium trajectory show ID' reads
    one turn by turn, 'podium trajectory export' writes many to a file.
    """
    if trajectory is None:
        await print_list(client, job, step, evaluation, limit, output)
        return
    item = await find(client, job, trajectory, step, evaluation)
    from podium.cli.views import TRAJECTORIES

    emit_one(item, TRAJECTORIES, output)
    if output == "table":
        from podium.cli.episodes import conversation

        click.echo()
        click.echo(conversation(item))
