"""Processes of one rollout service: each runs whole groups, on a core of its own.

One process takes the calls and hands each group to the worker that runs the fewest episodes. A
group stays with its worker from the first reset to the last score, so that whatever it holds, such
as the sessions of environments, is in one process. A worker that dies takes its groups with it,
which their callers hear as UNAVAILABLE and ask for again, and is started anew.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc
from podium.core.errors import UnavailableError
from podium.core.sockets import socket_folder
from podium.core.tasks import cancel_and_wait
from podium.kit.rpc import connect

from podium_rollout.domain import metrics

logger = logging.getLogger(__name__)

METRICS: Final = "/podium.rollout.worker/Metrics"
"""Of a worker: its metrics, for a request of no bytes."""
SANDBOX_PROGRAMS: Final = "PODIUM_SANDBOX_PROGRAMS"
_READY: Final = grpc.ChannelConnectivity.READY
_START_SECONDS: Final = 120.0
_END_SECONDS: Final = 5.0
_PAUSES: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Before a worker is started anew, as it dies again and again."""
_LIVED_SECONDS: Final = 300.0
"""After which a death is a first one again."""
_LOOK_SECONDS: Final = 0.05
_METRICS_SECONDS: Final = 2.0


@dataclass
class WorkerProcess:
    """One of them, over all its lives."""

    number: int
    channel: grpc.aio.Channel | None = None
    """None while it takes no calls."""
    episodes: int = 0
    """That it runs."""
    lives: int = field(default=0)
    _process: asyncio.subprocess.Process | None = None


def command(socket: Path) -> Sequence[str]:
    """What a worker is started with."""
    return (sys.executable, "-P", "-m", "podium_rollout.worker", str(socket))


class Workers:
    """Keeps so many of them alive."""

    def __init__(
        self,
        count: int,
        on_ready: Callable[[bool], object] = lambda ready: None,
        command: Callable[[Path], Sequence[str]] = command,
        pauses: Sequence[float] = _PAUSES,
    ) -> None:
        """Nothing is started yet.

        Args:
            on_ready: called with whether any of them takes calls, when that changes.
            command: what starts one that takes calls at a socket until its input ends.
            pauses: seconds before it is started anew, the first time and so on.
        """
        self.all = [WorkerProcess(number) for number in range(count)]
        self._on_ready = on_ready
        self._command = command
        self._pauses = pauses
        self._keepers: list[asyncio.Task[None]] = []
        self._ready = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All of them, while the block lasts.

        Raises:
            UnavailableError: WORKER_FAILED: one ended before it took calls.
        """
        with tempfile.TemporaryDirectory(prefix="podium-rollout-", dir=socket_folder()) as folder:
            try:
                async with asyncio.TaskGroup() as starting:
                    for worker in self.all:
                        starting.create_task(self._start(worker, Path(folder)))
            except BaseExceptionGroup as failed:
                await self._end_all()
                raise failed.exceptions[0] from None
            except BaseException:
                await self._end_all()
                raise
            self._keepers = [
                asyncio.create_task(self._keep(worker, Path(folder))) for worker in self.all
            ]
            try:
                yield
            finally:
                await cancel_and_wait(*self._keepers)
                await self._end_all()

    @property
    def ready(self) -> int:
        """How many take calls now."""
        return sum(worker.channel is not None for worker in self.all)

    @contextmanager
    def least_busy(self, episodes: int) -> Iterator[grpc.aio.Channel]:
        """A channel to the one that runs the fewest episodes, which counts these as its own.

        Raises:
            UnavailableError: NO_WORKER: all of them have died and are being started.
        """
        ready = [(worker, worker.channel) for worker in self.all if worker.channel is not None]
        if not ready:
            raise UnavailableError(
                "every worker process has died and is being started anew", reason="NO_WORKER"
            )
        # A broken connection tells of a death before the process can be waited for.
        worker, channel = min(
            ready, key=lambda each: (each[1].get_state() is not _READY, each[0].episodes)
        )
        worker.episodes += episodes
        try:
            yield channel
        finally:
            worker.episodes -= episodes

    async def metrics(self) -> dict[int, bytes]:
        """What those that answer show, by their numbers; see `worker_metrics`."""

        async def of(worker: WorkerProcess) -> bytes:
            if worker.channel is None:
                return b""
            ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = worker.channel.unary_unary(
                METRICS
            )
            try:
                return await ask(b"", timeout=_METRICS_SECONDS)
            except grpc.aio.AioRpcError:
                return b""

        found = await asyncio.gather(*map(of, self.all))
        return {number: shown for number, shown in enumerate(found) if shown}

    async def _start(self, worker: WorkerProcess, folder: Path) -> None:
        """Returns when it takes calls."""
        worker.lives += 1
        # gRPC would take over the socket of one that died; a name of its own cannot be mistaken.
        socket = folder / f"{worker.number}-{worker.lives}"
        share = max(1, len(os.sched_getaffinity(0)) // len(self.all))
        worker._process = await asyncio.create_subprocess_exec(
            *self._command(socket),
            stdin=asyncio.subprocess.PIPE,
            env={SANDBOX_PROGRAMS: str(share), **os.environ},
            # A terminal's interrupt is for the process that drains.
            start_new_session=True,
        )
        channel = connect(f"unix:{socket}")
        ended = asyncio.create_task(worker._process.wait())
        ready = asyncio.create_task(_connected(channel, socket))
        try:
            await asyncio.wait(
                (ended, ready), timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if not ready.done() or ended.done():
                how = f"ended with status {ended.result()}" if ended.done() else "took no calls"
                raise UnavailableError(
                    f"worker {worker.number} {how}; its log says why", reason="WORKER_FAILED"
                )
        except BaseException:
            await channel.close()
            raise
        finally:
            await cancel_and_wait(ended, ready)
        worker.channel = channel
        self._tell()

    async def _keep(self, worker: WorkerProcess, folder: Path) -> None:
        """Starts it anew whenever it has died."""
        loop = asyncio.get_running_loop()
        died = 0
        while True:
            assert worker._process is not None
            began = loop.time()
            code = await worker._process.wait()
            if loop.time() - began > _LIVED_SECONDS:
                died = 0
            await self._lost(worker)
            pause = self._pauses[min(died, len(self._pauses) - 1)]
            died += 1
            metrics.WORKERS_DIED.inc()
            logger.error(
                "a worker died; its groups end and will be asked for again",
                extra={"worker": worker.number, "status": code, "again_in_seconds": pause},
            )
            await asyncio.sleep(pause)
            try:
                await self._start(worker, folder)
            except UnavailableError as error:
                logger.error("a worker did not start: %s", error.message)
                await self._end(worker)

    async def _lost(self, worker: WorkerProcess) -> None:
        channel, worker.channel = worker.channel, None
        self._tell()
        if channel is not None:
            # Its calls end by themselves, as UNAVAILABLE; cut here they would be cancelled.
            await channel.close(_END_SECONDS)

    async def _end_all(self) -> None:
        await asyncio.gather(*map(self._end, self.all))

    async def _end(self, worker: WorkerProcess) -> None:
        await self._lost(worker)
        process = worker._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        # The end of its input is the end of its work.
        process.stdin.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def _tell(self) -> None:
        ready = self.ready > 0
        if ready != self._ready:
            self._ready = ready
            self._on_ready(ready)


async def _connected(channel: grpc.aio.Channel, socket: Path) -> None:
    # Whoever dials what is not there yet waits seconds before he dials again; and a socket tells
    # nobody that it has been made.
    while not os.path.exists(socket):  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(_LOOK_SECONDS)
    await channel.channel_ready()
