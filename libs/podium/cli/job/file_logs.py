"""What the services of this machine wrote about a job, from their log files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from podium.cli.output import note
from podium.cli.safe_text import visible

if TYPE_CHECKING:
    from podium.cli.job.wanted_logs import WantedLogs
    from podium.sdk import AsyncClient

_POLL_SECONDS = 0.5


class FileLogs:
    """The lines about a job in the services' files."""

    def __init__(self, files: Mapping[str, Path], wanted: WantedLogs, oldest: float) -> None:
        """`oldest` is the time before which lines are left out."""
        self._wanted = wanted
        chosen = {name: path for name, path in files.items() if wanted.takes(name)}
        if wanted.previous:
            # As the launcher calls the file of the run before.
            chosen = {name: path.with_name(f"{path.name}.1") for name, path in chosen.items()}
            if not any(path.exists() for path in chosen.values()):
                note("no logs of an earlier run are here")
        self._readers = [LogReader(name, path, wanted.job, oldest) for name, path in chosen.items()]

    async def show(self) -> None:
        for reader in self._readers:
            lines = list(reader.new_lines())
            tail = self._wanted.tail
            for line in lines if tail is None else lines[len(lines) - tail :]:
                click.echo(line)

    async def follow(self) -> None:
        while True:
            await self.rest()
            await asyncio.sleep(_POLL_SECONDS)

    async def rest(self) -> None:
        for reader in self._readers:
            for line in reader.new_lines():
                click.echo(line)


def log_files(client: AsyncClient, data_dir: Path | None) -> dict[str, Path]:
    """The services' files; none where the controller that is asked does not run here."""
    from podium.local.launcher import upfile
    from podium.sdk.connection.addresses import data_dir_in_use

    folder = data_dir or data_dir_in_use() or upfile.find()
    running = upfile.read(folder) if folder else None
    if running is None:
        return {}
    local = running.services.get("controller")
    if local is None or local.address != client.addresses.controller:
        return {}
    return {name: Path(entry.log) for name, entry in running.services.items()}


class LogReader:
    """Reads on in one service's log and keeps the lines about a job."""

    def __init__(self, service: str, path: Path, job_id: str, oldest: float = 0.0) -> None:
        self._service = service
        self._path = path
        self._job_id = job_id
        self._oldest = oldest
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
        lines = (raw.decode(errors="replace") for raw in whole)
        new = (line for line in lines if not self._oldest or written(line) >= self._oldest)
        for line in logs.matching(new, self._job_id):
            yield f"{self._service:<10}  {visible(line)}"


def written(line: str) -> float:
    """When a log line was written, in seconds since 1970; infinite where it does not say."""
    from podium.local.launcher import logs

    record = logs.parse(line) or {}
    stamp = str(record.get("time") or record.get("timestamp") or "")
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return float("inf")
