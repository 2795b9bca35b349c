"""`podium trajectory list`, and how an episode is found by its id."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from podium.cli.completers import job_argument
from podium.cli.connection import connected
from podium.cli.exits import CliError, Exit
from podium.cli.integers import Count
from podium.cli.output import emit_list, note, output_option

if TYPE_CHECKING:
    from podium.sdk import AsyncClient
    from podium.types.v1 import trajectory_pb2 as pb

_PART = re.compile(r"(?P<kind>[sv])(?P<number>\d{1,99})(-.*)?")

step_option = click.option("--step", type=Count(), help="Only this step's, or version's.")
evaluation_option = click.option(
    "--evaluation", is_flag=True, help="Episodes of evaluations, not of training."
)
limit_option = click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Most to list."
)


@click.command("list", short_help="List a job's episodes.")
@job_argument
@step_option
@evaluation_option
@limit_option
@output_option
@connected
async def list_trajectories(
    client: AsyncClient, job: str, step: int | None, evaluation: bool, limit: int, output: str
) -> None:
    """List a job's episodes, how they ended and what they were worth.

    Training episodes are listed unless --evaluation is given. -o json has them whole, with every
    message and token; 'podium trajectory export' writes many of them to a file. Those that were
    deleted to make room are told on stderr.
    """
    await print_list(client, job, step, evaluation, limit, output)


async def print_list(
    client: AsyncClient, job: str, step: int | None, evaluation: bool, limit: int, output: str
) -> None:
    """Prints the first `limit` episodes."""
    from podium.cli.views import TRAJECTORIES

    found = []
    async for item in client.jobs.trajectories(job, step=step, evaluation=evaluation):
        found.append(item)
        if len(found) == limit:
            break
    emit_list(found, TRAJECTORIES, output)
    await tell_deleted(client, job, step, evaluation)


async def tell_deleted(
    client: AsyncClient, job: str, step: int | None = None, evaluation: bool = False
) -> None:
    """Says which episodes of those that were asked for are not there any more, on stderr."""
    from podium.cli.views import deleted

    for each in await client.jobs.deleted_trajectories(job, step=step, evaluation=evaluation):
        note(deleted(each, evaluation))


async def find(
    client: AsyncClient,
    job: str,
    trajectory: str,
    step: int | None = None,
    evaluation: bool = False,
) -> pb.Trajectory:
    """The episode of an id, which says by itself of which step or version it is.

    Raises:
        CliError: the job has none of that id.
    """
    named = _PART.fullmatch(trajectory.split("/")[1] if trajectory.count("/") else "")
    if named:
        # The contract holds no greater one, and no job has so many.
        step, evaluation = min(int(named["number"]), 2**63 - 1), named["kind"] == "v"
    async for item in client.jobs.trajectories(job, step=step, evaluation=evaluation):
        if item.id == trajectory:
            return item
    await tell_deleted(client, job, step, evaluation)
    raise CliError(
        f"job {job} has no trajectory {trajectory}",
        f"'podium trajectory list {job}' lists them.",
        Exit.CONFLICT,
    )
