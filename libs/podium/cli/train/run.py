"""From a task's file to a trained policy, its curve and its report."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from podium.cli.exits import CliError, Exit
from podium.cli.local_training import follow, need_success, stack_config
from podium.cli.output import note
from podium.cli.signals import silence
from podium.cli.stack import check_packages, get_model, print_event
from podium.cli.train.job import begin
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.local.launcher import Event, EventKind, Launcher, upfile
from podium.local.launcher.layout import SERVICES
from podium.local.launcher.task import TaskServer
from podium.local.models import resolve
from podium.sdk.client import AsyncClient
from podium.sdk.connection.addresses import data_dir_in_use, locate
from podium.types.v1 import spec_pb2

_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Training:
    """What to train, and where."""

    task: str
    """As `podium env serve` takes it."""
    name: str
    """The environment's."""
    folder: Path
    """The task's."""
    data_dir: Path
    report: Path | None = None
    new: bool = False
    ready_timeout_seconds: float = 300.0
    """How long the services may take to serve, where they are started."""


def find_data_dir(folder: Path, named: Path | None) -> Path:
    """Where the stack is, or is to be."""
    named = named or data_dir_in_use()
    if named is not None:
        return named
    beside = folder / upfile.DEFAULT_DATA_DIR
    return beside if upfile.read(beside) is not None else upfile.find() or beside


def get_ready(training: Training, spec: spec_pb2.JobSpec) -> bool:
    """Whether a stack runs already; where none does, packages and model are there afterwards.

    Raises:
        CliError: the stack that runs has another model, a package is missing, or the model cannot
            be had, or the data directory cannot be written.
    """
    data_dir = training.data_dir
    running = upfile.read(data_dir)
    if running is not None:
        _need_same_model(running, spec.base_model, data_dir)
        note(f"using the stack that runs in {data_dir}")
        return True
    check_packages(SERVICES)
    get_model(spec.base_model)
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(
            f"{data_dir} cannot be written: {error.strerror}", "Name another --data-dir."
        ) from None
    return False


async def run(training: Training, spec: spec_pb2.JobSpec, *, is_running: bool) -> int:
    """Trains; returns an exit code.

    Raises:
        CliError: an unfinished job has other settings, or the job failed.
        PodiumError: a service or the task does not start.
    """
    data_dir = training.data_dir
    async with (
        TaskServer(training.task, training.name, data_dir, _tell_task) as server,
        _stack(training, spec, started=not is_running),
        AsyncClient(locate(data_dir=data_dir)) as client,
    ):
        spec.environment.address = server.address
        job = await begin(client, spec, new=training.new)
        note(click.style(f"\ntraining {spec.base_model} on {training.name}", bold=True))
        note(f"watch it from elsewhere: podium job watch {job.id} --data-dir {data_dir}")
        _note_console(data_dir)
        try:
            job = await follow(client, job.id)
        except asyncio.CancelledError:
            await _leave(client, job, training, started=not is_running)
            raise
        except BrokenPipeError:
            # Whoever read has enough, as `head` does; the task goes away with this command.
            silence(sys.stderr)
            await _leave(client, job, training, started=not is_running)
            raise
        need_success(job, data_dir)
        await _results(client, job, training)
    _how_to_chat(job, data_dir, up=not is_running)
    return Exit.OK


def _need_same_model(running: upfile.UpFile, model: str, data_dir: Path) -> None:
    missing = [name for name in SERVICES if name not in running.services]
    if missing:
        raise CliError(
            f"the stack that runs in {data_dir} has no {', '.join(missing)}",
            f"Stop it with 'podium down --data-dir {data_dir}', or name another --data-dir.",
            Exit.CONFLICT,
        )
    same = running.model == model
    if not same:
        try:
            same = resolve(running.model) == resolve(model)
        except Exception:
            same = False
    if not same:
        raise CliError(
            f"the stack that runs in {data_dir} serves {running.model}, and the job is to train "
            f"{model}",
            f"Stop it with 'podium down --data-dir {data_dir}', name another --data-dir, or train "
            f"--model {running.model}.",
            Exit.CONFLICT,
        )


@asynccontextmanager
async def _stack(
    training: Training, spec: spec_pb2.JobSpec, *, started: bool
) -> AsyncIterator[None]:
    """The six services, if none run."""
    if not started:
        yield
        return
    note(click.style("starting the six services; the engine takes about a minute", bold=True))
    config = stack_config(training.data_dir, spec.base_model, training.ready_timeout_seconds)
    async with Launcher(config, print_event):
        yield


def _tell_task(event: Event) -> None:
    # That it started, serves and stops is no news; what it prints when it dies is.
    if event.kind not in (EventKind.STARTED, EventKind.READY, EventKind.STOPPED):
        print_event(event)


def _note_console(data_dir: Path) -> None:
    running = upfile.read(data_dir)
    console = running.services.get("console") if running is not None else None
    note(f"in a browser: http://{console.address}/\n" if console is not None else "")


async def _leave(client: AsyncClient, job: jobs.Job, training: Training, *, started: bool) -> None:
    """Says where the job is; in a stack that goes on it is paused first, for its task goes away."""
    now = await client.jobs.get(job.id)
    if not started and now.state in (jobs.JOB_STATE_QUEUED, jobs.JOB_STATE_RUNNING):
        now = await client.jobs.pause(job.id)
        note(f"\npausing {job.id} when its step is done; Ctrl-C again leaves it as it is")
        while now.state == jobs.JOB_STATE_PAUSING:
            await asyncio.sleep(_LOOK_SECONDS)
            now = await client.jobs.get(job.id)
    done = f"{now.completed_steps} of {now.spec.training.steps} steps"
    note(f"\nstopping; {job.id} has {done}, and goes on with the same command")


async def _results(client: AsyncClient, job: jobs.Job, training: Training) -> None:
    from podium.cli.demo.result import measure, tell
    from podium.cli.html_report import collect, render
    from podium.cli.html_report.plot import of_report

    data = await collect(client, job.id, episodes=3)
    try:
        click.echo(tell(data, measure(data)))
    except CliError:
        # Without evaluations before and after there is the curve alone.
        click.echo(of_report(data))
    page = training.report or training.folder / f"{job.id}.html"
    try:
        await asyncio.to_thread(page.write_text, render(data), encoding="utf-8")
    except OSError as error:
        note(
            f"no report: {page} cannot be written ({error.strerror}); 'podium job report {job.id} "
            f"-o FILE' writes one"
        )
    else:
        click.echo(f"\nreport   {page}")


def _how_to_chat(job: jobs.Job, data_dir: Path, *, up: bool) -> None:
    where = f"--data-dir {data_dir}"
    first = f"  podium up {where} &\n" if up else ""
    click.echo(
        "\nchat with the trained policy, or take it with you:\n"
        f"{first}"
        f"  podium chat {where} -m {job.id}@{job.completed_steps}\n"
        f"  podium checkpoint export {where} {job.id}@{job.completed_steps} policy/"
    )
