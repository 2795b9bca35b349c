"""`podium train TASK`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING

import click

from podium.cli.exits import CliError, Exit
from podium.cli.findings import show as show_findings
from podium.cli.output import note
from podium.cli.signals import on_end
from podium.cli.stack import ready_timeout_option

if TYPE_CHECKING:
    from podium.environments import Environment
    from podium.types.v1.spec_pb2 import JobSpec


@click.command(short_help="Train on a task of your own, on this machine.")
@click.argument("task")
@click.option(
    "-f",
    "--file",
    "job_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The job file. [default: job.yaml beside TASK, else that of 'podium init']",
)
@click.option("--steps", type=click.IntRange(min=1), help="Optimizer steps. [default: the file's]")
@click.option(
    "--model",
    help="Base model: a prepared one's name, ORG/NAME of the Hugging Face hub, or a folder. "
    "[default: the file's]",
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key of the job file."
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the services keep state, checkpoints and logs. [default: that of a 'podium up' "
    "that runs here or beside TASK, else .podium beside TASK]",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The page to write. [default: JOB.html beside TASK]",
)
@click.option("--new", is_flag=True, help="Begin anew: cancel the unfinished job of this task.")
@click.option("--no-check", is_flag=True, help="Do not play the task without a model first.")
@ready_timeout_option
def train(
    task: str,
    job_file: Path | None,
    steps: int | None,
    model: str | None,
    settings: tuple[str, ...],
    data_dir: Path | None,
    report: Path | None,
    new: bool,
    no_check: bool,
    ready_timeout: float,
) -> int:
    """Train on TASK (task.py or task.py:Class) through a stack of this machine.

    It plays the task without a model, fetches or converts the base model, starts the six services
    (or takes those of a 'podium up' that runs here and serves the same model), serves the task,
    submits the job, follows it, writes a report, and ends what it started. After Ctrl-C the same
    command goes on where it was.
    """
    from podium.cli.environment_class import environment_class, scenarios_here
    from podium.cli.train.job import read_spec
    from podium.cli.train.run import Training, find_data_dir, get_ready, run
    from podium.core.errors import PodiumError
    from podium.environments.task_file import is_task_file, split

    if not is_task_file(task):
        raise click.UsageError(
            f"{task!r} is no file of a task, such as task.py; 'podium init NAME' makes one"
        )
    folder = split(task)[0].parent
    scenarios_here()
    try:
        kind = environment_class(task)
    except PodiumError as error:
        raise click.UsageError(error.message) from error
    if not isinstance(name := getattr(kind, "name", None), str) or not name:
        raise click.UsageError(f'{kind.__name__} has no name: give it one, name = "my_task"')
    chosen = [*settings]
    chosen += [f"training.steps={steps}"] if steps else []
    chosen += [f"base_model={model}"] if model else []
    spec = read_spec(job_file, folder, name, chosen)
    if not no_check:
        _check(task, kind, spec)
    training = Training(
        task=task,
        name=name,
        folder=folder,
        data_dir=find_data_dir(folder, data_dir),
        report=report,
        new=new,
        ready_timeout_seconds=ready_timeout,
    )
    # All that may take long and is no coroutine goes before the loop: Ctrl-C ends it at once.
    is_running = get_ready(training, spec)
    return asyncio.run(_until_signal(run(training, spec, is_running=is_running)))


def _check(task: str, kind: type[Environment], spec: JobSpec) -> None:
    """Raises CliError when the task has an error that can be seen without a model."""
    from podium.cli.environment_check import as_shown, played
    from podium.environments.checking import Bounds
    from podium.environments.serving.convert import unstruct

    report = played(kind, unstruct(spec.environment.config), Bounds(scenarios=2))
    if report.findings:
        show_findings([as_shown(found) for found in report.findings])
    if report.errors:
        raise CliError(
            f"{task} would not train",
            "Mend it and try 'podium env check' again, or train all the same with --no-check.",
        )


async def _until_signal(body: Coroutine[None, None, int]) -> int:
    """Has SIGTERM and SIGHUP end the body as Ctrl-C does: cleanly."""
    task = asyncio.current_task()
    asked = False

    def ask() -> None:
        nonlocal asked
        asked = True
        if task is not None:
            task.cancel()

    on_end(ask, interrupt=False)
    try:
        return int(await body)
    except asyncio.CancelledError:
        if not asked:
            raise
        note("stopped")
        return Exit.INTERRUPTED
