"""`podium job logs`: a job's events, and what its services wrote about it."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from podium.cli.completers import job_argument
from podium.cli.connection import address_option, context_option, data_dir_option, run_client
from podium.cli.exits import CliError, Exit
from podium.cli.job.wanted_logs import WantedLogs
from podium.cli.output import note
from podium.cli.safe_text import visible

if TYPE_CHECKING:
    from podium.jobs.v1 import job_service_pb2 as pb
    from podium.sdk import AsyncClient

_SECONDS = {"s": 1, "m": 60, "h": 3600}
_PARTS = re.compile(r"(\d+)([smh])")


class LogSource(Protocol):
    """Where services' lines are read."""

    async def show(self) -> None:
        """Prints the lines that are there."""
        ...

    async def follow(self) -> None:
        """Prints those that come, until it is cancelled."""
        ...

    async def rest(self) -> None:
        """Prints the last ones, when the job has ended."""
        ...


class _Duration(click.ParamType[str]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(rf"({_PARTS.pattern})+", str(value)):
            self.fail(f"got {value!r}; allowed is a duration such as 30s, 10m or 1h30m", param, ctx)
        return str(value)


@click.command(short_help="Show a job's events and what its services wrote.")
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends.")
@click.option(
    "--service",
    multiple=True,
    metavar="NAME",
    help="Only this one's lines, such as trainer or inference.",
)
@click.option("--pod", multiple=True, metavar="NAME", help="Only pods whose names begin so.")
@click.option(
    "--tail",
    type=click.IntRange(min=0),
    help="Only the last lines of each service, or of each pod.",
)
@click.option("--since", type=_Duration(), metavar="DURATION", help="Only newer ones: 30s, 1h30m.")
@click.option(
    "--previous", is_flag=True, help="Of containers before their restart, or of the run before."
)
@address_option
@context_option
@data_dir_option
def logs(
    job: str,
    follow: bool,
    service: tuple[str, ...],
    pod: tuple[str, ...],
    tail: int | None,
    since: str | None,
    previous: bool,
    address: str,
    context: str,
    data_dir: Path | None,
) -> None:
    """Show a job's events, and what the services wrote about it.

    On a cluster: every line of the job's own pods, which are its trainer's and its environment's,
    and those lines of the other pods that name the job; each after its service and pod. They are
    read with kubectl, which must be allowed to list pods and to get pods/log, where the context in
    use leads to a release. A pod that is gone has no log any more.

    Where 'podium up' runs here: the lines that name the job; whole logs are in DATA_DIR/logs.
    """
    if previous and follow:
        raise click.UsageError("--previous has an end, and --follow waits for more; name one")
    wanted = WantedLogs(job, service, pod, tail, since or "", previous)
    run_client(address, context, data_dir, lambda client: _logs(client, wanted, follow, data_dir))


async def _logs(
    client: AsyncClient, wanted: WantedLogs, follow: bool, data_dir: Path | None
) -> None:
    oldest = time.time() - seconds(wanted.since) if wanted.since else 0.0
    sequence = 0
    async for event in client.jobs.events(wanted.job):
        sequence = event.sequence
        if event.time.seconds >= oldest:
            click.echo(_event(event))
    source = _source(client, wanted, oldest, data_dir)
    if source is not None:
        await source.show()
    if not follow:
        return
    printing = asyncio.ensure_future(source.follow()) if source is not None else None
    try:
        await _watch(client, wanted.job, sequence, printing)
    finally:
        if printing is not None:
            printing.cancel()
            with suppress(asyncio.CancelledError):
                await printing
    if source is not None:
        await source.rest()


async def _watch(
    client: AsyncClient, job: str, sequence: int, printing: asyncio.Future[None] | None
) -> None:
    """Prints events until the job ends.

    Raises:
        PodiumError: what `printing` raised.
    """

    async def events() -> None:
        async for update in client.jobs.watch(job, after_sequence=sequence):
            click.echo(_event(update.event))

    watching = asyncio.ensure_future(events())
    try:
        await asyncio.wait(
            [watching, *([printing] if printing else [])], return_when=asyncio.FIRST_COMPLETED
        )
        if watching.done():
            watching.result()
    finally:
        watching.cancel()


def _source(
    client: AsyncClient, wanted: WantedLogs, oldest: float, data_dir: Path | None
) -> LogSource | None:
    """Where the lines are; None, and a word on stderr, where they cannot be reached from here.

    Raises:
        CliError: pods are asked for where there are none.
    """
    from podium.cli.job.file_logs import FileLogs, log_files

    if files := log_files(client, data_dir):
        if wanted.pods:
            raise CliError("--pod: the services run on this machine, without pods", code=Exit.USAGE)
        return FileLogs(files, wanted, oldest)
    if (release := client.addresses.kubernetes) is not None:
        from podium.cli.job.pod_logs import PodSource
        from podium.sdk.connection.pod_logs import PodLogs

        return PodSource(PodLogs(release), wanted)
    note(
        "no log files here: the services of this installation run elsewhere. Where that is a "
        "cluster, 'podium login NAME --release RELEASE' lets this command read its pods' logs"
    )
    return None


def seconds(duration: str) -> float:
    """`1h30m` in seconds."""
    return sum(int(count) * _SECONDS[unit] for count, unit in _PARTS.findall(duration))


def _event(event: pb.Event) -> str:
    from podium.cli.views import local_time
    from podium.jobs.v1 import job_service_pb2 as pb

    kind = pb.EventType.Name(event.type).removeprefix("EVENT_TYPE_").lower()
    clock = local_time(event.time).split(" ")[-1]
    return f"{click.style('event', bold=True):<10}  {clock} {kind}: {visible(event.message)}"
