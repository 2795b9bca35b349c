"""`podium job logs`: a job's events, and what the services of this machine wrote about it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from podium.cli.connection import address_option, context_option, data_dir_option, run_client
from podium.cli.output import note

if TYPE_CHECKING:
    from podium.jobs.v1 import job_service_pb2 as pb
    from podium.sdk import AsyncClient

_POLL_SECONDS = 0.5


@click.command(short_help="Show a job's events and the services' log lines.")
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends.")
@click.option("--service", multiple=True, help="Only these services' log lines.")
@click.option("--tail", type=click.IntRange(min=0), help="Only the last lines of each service.")
@address_option
@context_option
@data_dir_option
def logs(
    job: str,
    follow: bool,
    service: tuple[str, ...],
    tail: int | None,
    address: str,
    context: str,
    data_dir: Path | None,
) -> None:
    """Show a job's events and, where 'podium up' runs here, the log lines about the job.

    Lines are those that name the job; whole logs are in DATA_DIR/logs.
    """
    run_client(
        address,
        context,
        data_dir,
        lambda client: _logs(client, job, follow, service, tail, data_dir),
    )


async def _logs(
    client: AsyncClient,
    job: str,
    follow: bool,
    services: tuple[str, ...],
    tail: int | None,
    data_dir: Path | None,
) -> None:
    sequence = 0
    async for event in client.jobs.events(job):
        sequence = event.sequence
        click.echo(_event(event))
    files = _log_files(client, services, data_dir)
    readers = [LogReader(name, path, job) for name, path in files.items()]
    for reader in readers:
        lines = list(reader.new_lines())
        for line in lines if tail is None else lines[len(lines) - tail :]:
            click.echo(line)
    if not files:
        note("no log files here: the services of this installation run elsewhere")
    if follow:
        printing = asyncio.create_task(_print_new(readers))
        try:
            async for update in client.jobs.watch(job, after_sequence=sequence):
                click.echo(_event(update.event))
        finally:
            printing.cancel()
            with suppress(asyncio.CancelledError):
                await printing


async def _print_new(readers: list[LogReader]) -> None:
    while True:
        for reader in readers:
            for line in reader.new_lines():
                click.echo(line)
        await asyncio.sleep(_POLL_SECONDS)


def _log_files(
    client: AsyncClient, services: tuple[str, ...], data_dir: Path | None
) -> dict[str, Path]:
    from podium.local.launcher import upfile
    from podium.sdk.connection.addresses import data_dir_in_use

    folder = data_dir or data_dir_in_use() or upfile.find()
    running = upfile.read(folder) if folder else None
    if running is None:
        return {}
    local = running.services.get("controller")
    if local is None or local.address != client.addresses.controller:
        return {}
    return {
        name: Path(entry.log)
        for name, entry in running.services.items()
        if not services or name in services
    }


def _event(event: pb.Event) -> str:
    from podium.cli.views import local_time
    from podium.jobs.v1 import job_service_pb2 as pb

    kind = pb.EventType.Name(event.type).removeprefix("EVENT_TYPE_").lower()
    clock = local_time(event.time).split(" ")[-1]
    return f"{click.style('event', bold=True):<10}  {clock} {kind}: {event.message}"


class LogReader:
    """Reads on in one service's log and keeps the lines about a job."""

    def __init__(self, service: str, path: Path, job_id: str) -> None:
        self._service = service
        self._path = path
        self._job_id = job_id
        self._offset = 0
        self._partial = b""

    def new_lines(self) -> Iterator[str]:
        """The whole lines about the job that were written since the last call."""
        from podium.local.launcher import logs

        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                fresh = file.read()
        except FileNotFoundError:
            return
        self._offset += len(fresh)
        *whole, self._partial = (self._partial + fresh).split(b"\n")
        for line in logs.matching((raw.decode(errors="replace") for raw in whole), self._job_id):
            yield f"{self._service:<10}  {line}"
