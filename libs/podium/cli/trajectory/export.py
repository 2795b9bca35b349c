"""`podium trajectory export`."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from podium.cli.completers import job_argument
from podium.cli.connection import connected
from podium.cli.exits import CliError, Exit
from podium.cli.output import note, plain_terminal
from podium.cli.ranges import Range, RangeType
from podium.cli.trajectory.listing import tell_deleted
from podium.core.job_environments import environments_of

if TYPE_CHECKING:
    from podium.jobs.v1 import job_service_pb2 as jobs
    from podium.sdk import AsyncClient
    from podium.types.v1 import trajectory_pb2 as pb

_TELL_EVERY = 500


@click.command(short_help="Write episodes to a file.")
@job_argument
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path, allow_dash=True),
    help="NAME.jsonl or NAME.parquet; - writes JSON lines to stdout. With --format datasets a new "
    "folder.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(("jsonl", "parquet", "datasets")),
    help="Of a file whose name does not say; datasets is a folder that load_dataset of Hugging "
    "Face's datasets reads.",
)
@click.option(
    "--step",
    "steps",
    type=RangeType(),
    metavar="A:B",
    help="Only these steps', or versions': 3, 3:5 (both included), 3: or :5.",
)
@click.option(
    "--split",
    metavar="NAME",
    help="Episodes of this split: the one that the job trains on, or evaluates on. [default: the "
    "training's; of datasets both]",
)
@connected
async def export(
    client: AsyncClient,
    job: str,
    output: Path,
    kind: str | None,
    steps: Range | None,
    split: str | None,
) -> None:
    """Write a job's episodes to a file or folder, for fine-tuning or analysis.

    A row is one conversation of an episode: its messages and tools as OpenAI's API writes them, its
    tokens with their log-probs, and the episode's rewards, metrics and end.
    docs/trajectories.md has every column. However many episodes there are, few are in memory at a
    time; the file appears when it is whole, in the place of one that was there, and a folder where
    there was none.

    Without --split it is the episodes of training, and of datasets all; --split heldout are those
    of a job's evaluations (unless it names another split for them).
    """
    from podium.cli.trajectory.datasets_folder import folder
    from podium.cli.trajectory.files import writer

    made = folder(output, job) if kind == "datasets" else writer(output, kind)
    known = await client.jobs.get(job)
    episodes = sources(known, split, every=kind == "datasets")
    count = 0
    with made as write:
        for evaluation, name in episodes:
            found = _episodes(client, known, steps, evaluation)
            async with aclosing(found):
                async for item in found:
                    write(item, name)
                    count += 1
                    if count % _TELL_EVERY == 0 and not plain_terminal():
                        click.echo(f"\r{count} episodes", nl=False, err=True)
    if not plain_terminal():
        click.echo("\r", nl=False, err=True)
    if steps is None:
        for evaluation, _ in episodes:
            await tell_deleted(client, job, evaluation=evaluation)
    note(f"wrote {count} episodes" + ("" if str(output) == "-" else f" to {output}"))
    if str(output) != "-":
        click.echo(str(output))
    sys.stdout.flush()


def sources(job: jobs.Job, split: str | None, every: bool = False) -> list[tuple[bool, str]]:
    """Where the episodes of a split are: `(of evaluations, its name)`; of none those of training,
    or `every` one.

    Raises:
        CliError: the job has no such split.
    """
    # One name of a split in a file: several environments mostly have the same.
    trained = (
        " + ".join({e.environment.split or "train": 0 for e in environments_of(job.spec)})
        or "train"
    )
    evaluated = job.spec.evaluation.split or "heldout"
    if split is None:
        return [(False, trained), (True, evaluated)][: 1 + every]
    found = [each for each in ((False, trained), (True, evaluated)) if each[1] == split]
    if not found:
        raise CliError(
            f"--split: got {split!r}; job {job.id} trains on {trained!r} and is evaluated on "
            f"{evaluated!r}",
            code=Exit.USAGE,
        )
    return found


async def _episodes(
    client: AsyncClient, job: jobs.Job, steps: Range | None, evaluation: bool
) -> AsyncGenerator[pb.Trajectory, None]:
    """The episodes of some steps, asked for one by one; those of others are not read."""
    if steps is None:
        async for item in client.jobs.trajectories(job.id, evaluation=evaluation):
            yield item
        return
    if evaluation:
        listed = {item.version async for item in client.jobs.evaluations(job.id)}
    else:
        # Those after the last committed one may be stored already.
        ahead = 1 + job.spec.rollout.max_staleness
        listed = set(range(1, job.completed_steps + ahead + 1))
    for number in sorted(each for each in listed if each in steps):
        async for item in client.jobs.trajectories(job.id, step=number, evaluation=evaluation):
            yield item
