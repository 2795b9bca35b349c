"""`podium job events|steps|evaluations|trajectories`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from podium.cli.connection import connected
from podium.cli.exits import CliError, Exit
from podium.cli.output import emit_list, emit_one, note, output_option

if TYPE_CHECKING:
    from podium.sdk import AsyncClient


@click.command(short_help="List what happened to a job.")
@click.argument("job")
@output_option
@connected
async def events(client: AsyncClient, job: str, output: str) -> None:
    """List a job's events, oldest first."""
    from podium.cli.views import EVENTS

    emit_list([event async for event in client.jobs.events(job)], EVENTS, output)


@click.command(short_help="List a job's training steps.")
@click.argument("job")
@output_option
@connected
async def steps(client: AsyncClient, job: str, output: str) -> None:
    """List a job's committed steps; -o json has every number of each."""
    from podium.cli.views import STEPS

    found = [step async for step in client.jobs.steps(job)]
    emit_list(found, STEPS, output)
    idle = [str(step.number) for step in found if step.metrics.get("train/tokens_trained") == 0]
    if idle and output == "table":
        note(
            f"warning: trained nothing: step {', '.join(idle)}\n"
            f"why, and what to change: podium job events {job}"
        )


@click.command(short_help="List a job's evaluations.")
@click.argument("job")
@output_option
@connected
async def evaluations(client: AsyncClient, job: str, output: str) -> None:
    """List a job's evaluations with the 95 % interval of their success rate."""
    from podium.cli.views import EVALUATIONS

    emit_list([item async for item in client.jobs.evaluations(job)], EVALUATIONS, output)


@click.command(short_help="List or read a job's episodes.")
@click.argument("job")
@click.argument("trajectory", required=False)
@click.option("--step", type=click.IntRange(min=0), help="Only this step's, or version's.")
@click.option("--evaluation", is_flag=True, help="Episodes of evaluations, not of training.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Most to list."
)
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

    Training episodes are listed unless --evaluation is given.
    """
    from podium.cli.views import TRAJECTORIES

    if trajectory is None:
        found = []
        async for item in client.jobs.trajectories(job, step=step, evaluation=evaluation):
            found.append(item)
            if len(found) == limit:
                break
        emit_list(found, TRAJECTORIES, output)
        return
    step, evaluation = _part_of_id(trajectory, step, evaluation)
    async for item in client.jobs.trajectories(job, step=step, evaluation=evaluation):
        if item.id == trajectory:
            emit_one(item, TRAJECTORIES, output)
            if output == "table":
                from podium.cli.episodes import conversation

                click.echo()
                click.echo(conversation(item))
            return
    raise CliError(
        f"job {job} has no trajectory {trajectory}",
        f"'podium job trajectories {job}' lists them.",
        Exit.CONFLICT,
    )


def _part_of_id(trajectory: str, step: int | None, evaluation: bool) -> tuple[int | None, bool]:
    """The step, and whether it is an evaluation's, as `{job}/s3/…` and `{job}/v3-…/…` say."""
    part = trajectory.split("/")[1] if trajectory.count("/") else ""
    number = part[1:].split("-")[0]
    if part[:1] in {"s", "v"} and number.isdigit():
        return int(number), part[0] == "v"
    return step, evaluation
