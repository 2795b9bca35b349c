"""Starts programs in sandboxes, a bounded number at once."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import TypeVar
from weakref import WeakKeyDictionary

from podium.core.errors import FailedPreconditionError
from podium.core.time_limits import queued
from podium.environments.sandbox.bubblewrap import command
from podium.environments.sandbox.limits import Limits
from podium.environments.sandbox.process import Outcome, Process, readable
from podium.environments.sandbox.syscalls import compiled_filter

T = TypeVar("T")

_TRIES = 3
"""Of making one sandbox: as root, one that is made while another mount ends cannot be."""


class Sandbox:
    """Runs programs under one set of limits. Any event loop may use it."""

    def __init__(self, limits: Limits | None = None, *, concurrency: int = 0) -> None:
        """At most `concurrency` programs run at once an event loop; 0: as many as there are CPUs,
        or as PODIUM_SANDBOX_PROGRAMS says where several processes share them.

        The others wait, which is part neither of their time nor of the time of whoever starts
        them (`podium.core.time_limits`).
        """
        self.limits = limits or Limits()
        self._concurrency = concurrency or _places()
        self._checked = False
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            WeakKeyDictionary()
        )

    async def run(self, program: str, stdin: bytes = b"") -> Outcome:
        """Runs Python source to its end.

        Raises:
            FailedPreconditionError: no sandbox can be made here; the text says what is missing.
        """
        async with self.start(program) as process:
            return await process.finish(stdin)

    async def check(self) -> None:
        """Makes a sandbox once, to learn whether it can be; raises as `run` does."""
        if not self._checked:
            await self.run("")
            self._checked = True

    @asynccontextmanager
    async def start(self, program: str) -> AsyncIterator[Process]:
        """Runs Python source for as long as the block lasts.

        Leaving the block, by cancellation too, kills what still runs and waits
        until it is gone. Raises as `run` does.
        """
        loop = asyncio.get_running_loop()
        turns = self._turns.setdefault(loop, asyncio.Semaphore(self._concurrency))
        with queued():
            await turns.acquire()
        try:
            async with AsyncExitStack() as running:
                yield await self._made(program.encode(errors="surrogatepass"), running)
        finally:
            turns.release()

    async def _made(self, program: bytes, running: AsyncExitStack) -> Process:
        """A process that is about to begin; where mounts come and go, the first try may fail."""
        for more in reversed(range(_TRIES)):
            async with AsyncExitStack() as trying:
                process = await trying.enter_async_context(self._started(program))
                try:
                    await process.ready()
                except FailedPreconditionError:
                    if not more:
                        raise
                    continue
                await running.enter_async_context(trying.pop_all())
                return process
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def _started(self, program: bytes) -> AsyncIterator[Process]:
        """Ends it, whatever it has come to."""
        process, cancelled = await _complete(self._spawn(program))
        loop = asyncio.get_running_loop()
        clock = loop.call_later(self.limits.wall_seconds, process.stop, "wall_time")
        try:
            if cancelled is not None:
                raise cancelled
            yield process
        finally:
            clock.cancel()
            _, cancelled = await _complete(process.close())
            if cancelled is not None:
                raise cancelled

    async def _spawn(self, program: bytes) -> Process:
        """Not to be cancelled: bubblewrap killed while it makes a sandbox leaves half of it."""
        with ExitStack() as ours:
            # In memory and not in a pipe: nobody has to keep writing.
            source = _file("podium-program", program, ours)
            seccomp = _file("podium-seccomp", compiled_filter(), ours)
            info, info_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            ours.callback(os.close, info)
            with ExitStack() as lent:
                lent.callback(os.close, info_writer)
                process = await asyncio.create_subprocess_exec(
                    *command(self.limits, info=info_writer, program=source, seccomp=seccomp),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    limit=self.limits.output_bytes,
                    pass_fds=(source, seccomp, info_writer),
                    env={},
                    start_new_session=True,
                )
            return Process(process, await _first_process(info), self.limits.output_bytes)


def _places() -> int:
    told = os.environ.get("PODIUM_SANDBOX_PROGRAMS", "")
    return int(told) if told.isdecimal() and int(told) else len(os.sched_getaffinity(0))


async def _first_process(info: int) -> int | None:
    """A descriptor of the sandbox's first process, whose end is the end of all of them."""
    report = b""
    while True:
        await readable(info)
        chunk = os.read(info, 4096)
        if not chunk:
            break
        report += chunk
    try:
        return os.pidfd_open(json.loads(report)["child-pid"])
    except (ValueError, ProcessLookupError):
        # Bubblewrap ended before, and says why on standard error.
        return None


def _file(name: str, content: bytes, closing: ExitStack) -> int:
    descriptor = os.memfd_create(name)
    closing.callback(os.close, descriptor)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


async def _complete(work: Coroutine[None, None, T]) -> tuple[T, asyncio.CancelledError | None]:
    """Awaits it to its end; a cancellation that came meanwhile is for the caller to raise."""
    task = asyncio.ensure_future(work)
    cancelled = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    return task.result(), cancelled
