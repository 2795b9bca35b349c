"""`podium sft`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from podium.cli.connection import connected
from podium.cli.exits import CliError, Exit
from podium.cli.output import emit_one, note, output_option

if TYPE_CHECKING:
    from podium.sdk import AsyncClient
    from podium.sdk.chosen import Chosen


@click.command(short_help="Fine-tune on conversations.")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("-f", "--file", "job_file", required=True, metavar="FILE", help="The job file.")
@click.option("--heldout", metavar="FILE", help="Rows whose loss is measured; they do not train.")
@click.option("--from-job", default="", metavar="JOB", help="Learn from episodes of this job.")
@click.option("--best", type=float, metavar="SHARE", help="Of them those of the highest rewards.")
@click.option("--min-reward", type=float, help="Of them those of this reward and above.")
@click.option("--successful", is_flag=True, help="Of them those whose metric success is above 0.")
@click.option("--epochs", type=click.IntRange(min=1), help="Passes over the rows. [default: 1]")
@click.option("--batch-size", type=click.IntRange(min=1), help="Rows of a step. [default: 8]")
@click.option("--id", "job_id", default="", help="The job's id. [default: of the file and rows]")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@click.option("--skip-bad", is_flag=True, help="Leave out rows that cannot train, and count them.")
@output_option
@connected
async def sft(
    client: AsyncClient,
    files: tuple[str, ...],
    job_file: str,
    heldout: str | None,
    from_job: str,
    best: float | None,
    min_reward: float | None,
    successful: bool,
    epochs: int | None,
    batch_size: int | None,
    job_id: str,
    settings: tuple[str, ...],
    skip_bad: bool,
    output: str,
) -> int:
    """Fine-tune on the conversations of FILEs, or of a job's best episodes, and follow it.

    A FILE ends in .jsonl or .parquet. Each row has messages, and tools where there are some, as
    OpenAI's fine-tuning files have them; each of the assistant's messages trains but those of
    weight 0. All rows are checked before anything trains.

    The job file is that of any job, without training.steps for all steps of all epochs. After
    Ctrl-C the same command goes on after the last committed step.
    """
    from podium.cli.job.submit import load
    from podium.cli.views import JOB
    from podium.core.contract import fork_alias as fork

    chosen = _chosen(from_job, best, min_reward, successful=successful)
    if not files and chosen is None:
        raise CliError("there is nothing to learn from", "Give a FILE, or --from-job.", Exit.USAGE)
    keys = [*settings]
    keys += [f"sft.epochs={epochs}"] if epochs else []
    keys += [f"sft.batch_size={batch_size}"] if batch_size else []
    spec, alias = load(job_file, keys, counts_steps=True)
    await fork.resolve(spec, alias, client.checkpoints.get)
    try:
        run = await client.train_sft(
            spec,
            files or None,
            heldout=heldout,
            from_job=chosen,
            job_id=job_id,
            skip_bad=skip_bad,
        )
    except asyncio.CancelledError:
        note("stopped; the same command goes on after the last committed step")
        raise
    emit_one(run.job, JOB, output)
    if run.best_version is not None:
        loss = run.heldout_losses[run.best_version]
        note(f"best version {run.best_version}, with a loss of {loss:.4f} on what is held out")
    return Exit.OK


def _chosen(
    from_job: str, best: float | None, min_reward: float | None, *, successful: bool
) -> Chosen | None:
    """The episodes to learn from.

    Raises:
        CliError: a rule without a job.
    """
    from podium.sdk.chosen import Chosen

    if from_job:
        return Chosen(from_job, best=best, min_reward=min_reward, successful=successful)
    if best is not None or min_reward is not None or successful:
        raise CliError(
            "--best, --min-reward and --successful choose of a job's episodes",
            "Name the job with --from-job.",
            Exit.USAGE,
        )
    return None
