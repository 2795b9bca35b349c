"""What the pods of a cluster wrote about a job: all of its own pods, of others what names it."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from podium.cli.output import note
from podium.cli.safe_text import visible
from podium.core.errors import PermissionDeniedError, PodiumError

if TYPE_CHECKING:
    from podium.cli.job.wanted_logs import WantedLogs
    from podium.sdk.connection.pod_logs import PodLogs, PodReader, ReleasePod

POLL_SECONDS = 5.0
"""Between looks for pods that are new, or began anew."""


class PodSource:
    """The lines about a job in its release's pods."""

    def __init__(self, logs: PodLogs, wanted: WantedLogs) -> None:
        self._logs = logs
        self._wanted = wanted
        self._readers: dict[str, PodReader] = {}
        self._reported: set[str] = set()

    async def show(self) -> None:
        """Raises PodiumError where the cluster, or a right there, is missing."""
        pods = await self._pods()
        if not pods:
            note("no pod fits; 'kubectl get pods' shows what there is")
        elif not any(pod.job for pod in pods) and not self._wanted.services:
            note("the job has no pods of its own now")
        if self._wanted.previous and not any(pod.restarts for pod in pods):
            note("no container of these pods has been restarted")
        for pod in pods:
            if not self._wanted.previous or pod.restarts:
                await self._read(self._reader(pod), tail=self._wanted.tail)

    async def follow(self) -> None:
        running: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                for pod in await self._seen():
                    if pod.name not in running or running[pod.name].done():
                        _raise_failure(running.get(pod.name))
                        reading = self._read(self._reader(pod), follow=True)
                        running[pod.name] = asyncio.create_task(reading)
                await asyncio.sleep(POLL_SECONDS)
        finally:
            for task in running.values():
                task.cancel()
            await asyncio.gather(*running.values(), return_exceptions=True)

    async def rest(self) -> None:
        for pod in await self._seen():
            await self._read(self._reader(pod))

    async def _pods(self) -> list[ReleasePod]:
        return [
            pod
            for pod in await self._logs.pods(self._wanted.job)
            if self._wanted.takes(pod.component)
            and (not self._wanted.pods or pod.name.startswith(self._wanted.pods))
        ]

    async def _seen(self) -> list[ReleasePod]:
        """The pods now; none while the API server is away, which is said once."""
        try:
            return await self._pods()
        except PermissionDeniedError:
            raise
        except PodiumError as error:
            self._tell(error.message)
            return []

    def _reader(self, pod: ReleasePod) -> PodReader:
        if pod.name not in self._readers:
            wanted = self._wanted
            self._readers[pod.name] = self._logs.reader(
                pod, since=wanted.since, previous=wanted.previous
            )
        return self._readers[pod.name]

    async def _read(
        self, reader: PodReader, *, tail: int | None = None, follow: bool = False
    ) -> None:
        """Prints a pod's lines; says once why it has none, as one that has not begun yet."""
        from podium.local.launcher import logs

        pod = reader.pod
        kept: deque[str] = deque(maxlen=tail)
        try:
            async with aclosing(reader.lines(follow=follow)) as lines:
                async for line in lines:
                    if not pod.job and not logs.mentions(line, self._wanted.job):
                        continue
                    text = f"{pod.component:<10}  {pod.name}  {visible(logs.readable(line))}"
                    if tail is None:
                        click.echo(text)
                    else:
                        kept.append(text)
        except PermissionDeniedError:
            raise
        except PodiumError as error:
            self._tell(f"{pod.name}: {error.message}")
        for text in kept:
            click.echo(text)

    def _tell(self, words: str) -> None:
        if words not in self._reported:
            self._reported.add(words)
            note(visible(words))


def _raise_failure(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.result()
