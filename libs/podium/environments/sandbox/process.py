"""One program in a sandbox, while it runs."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import Process as Subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from podium.core.errors import FailedPreconditionError

StoppedBy = Literal["", "wall_time", "output"]

_CHUNK = 64 * 1024
_READY = _GO = b"\n"


@dataclass(frozen=True)
class Outcome:
    """How a program ended."""

    returncode: int
    """Its exit status, or 128 plus the number of the signal that ended it."""
    stdout: bytes
    """What had not been read before."""
    stderr: bytes
    stopped_by: StoppedBy = ""
    """The limit that the sandbox had to enforce by killing it; the kernel enforces the others."""


class Process:
    """Talks to a running program. `Sandbox.start` makes it and ends it."""

    def __init__(self, process: Subprocess, first: int | None, output_bytes: int) -> None:
        """Takes over the descriptor of the sandbox's first process; None: it was not made."""
        self._process = process
        self._first = first
        self._left = output_bytes
        self._stopped_by: StoppedBy = ""
        self._stderr = bytearray()
        self._draining = asyncio.create_task(self._drain(output_bytes))

    async def ready(self) -> None:
        """Waits until the untrusted program is about to begin.

        Raises:
            FailedPreconditionError: the sandbox could not be made.
        """
        assert self._process.stdout is not None
        if await self._process.stdout.read(1) == _READY:
            await self.write(_GO)
            return
        if self._stopped_by:
            raise FailedPreconditionError(
                "the sandbox did not start within its wall time", reason="SANDBOX_UNAVAILABLE"
            )
        await self._draining
        why = bytes(self._stderr).decode(errors="replace").strip()[-500:]
        raise FailedPreconditionError(
            f"the sandbox could not be made: {why or 'bubblewrap ended without a word'}. It needs "
            "a kernel and a container that let this user make user namespaces",
            reason="SANDBOX_UNAVAILABLE",
        )

    async def write(self, data: bytes) -> None:
        """To standard input; a program that has ended reads nothing, which is no error."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError, ConnectionResetError):
            self._process.stdin.write(data)
            await self._process.stdin.drain()

    async def read_line(self) -> bytes:
        """The next line of standard output with its newline; less at the end of it."""
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readline()
        except ValueError:
            # Longer than the stream may hold, which is as much as is left or more.
            self.stop("output")
            return b""
        return self._count(line)

    async def finish(self, stdin: bytes = b"") -> Outcome:
        """Writes what is left to write, reads the rest and waits for the end."""
        assert self._process.stdout is not None
        feeding = asyncio.create_task(self._feed(stdin))
        rest = bytearray()
        try:
            while chunk := await self._process.stdout.read(_CHUNK):
                rest += self._count(chunk)
            returncode = await self._process.wait()
        finally:
            feeding.cancel()
        await self._draining
        return Outcome(returncode, bytes(rest), bytes(self._stderr), self._stopped_by)

    def stop(self, why: StoppedBy = "") -> None:
        """Kills the program and all that it started; does not wait for their end."""
        self._stopped_by = self._stopped_by or why
        with suppress(ProcessLookupError):
            if self._first is not None:
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
            else:
                self._process.kill()

    async def close(self) -> None:
        """Kills what still runs and returns when nothing is left of it."""
        assert self._process.stdout is not None
        self.stop()
        try:
            # asyncio waits for the ends of the pipes too, which come once they are empty.
            while await self._process.stdout.read(_CHUNK):
                pass
            await self._process.wait()
            if self._first is not None:
                await readable(self._first)
                _reap(self._first)
        finally:
            self._draining.cancel()
            if self._first is not None:
                os.close(self._first)
                self._first = None

    def _count(self, data: bytes) -> bytes:
        kept = data[: self._left]
        self._left -= len(kept)
        if len(kept) < len(data):
            self.stop("output")
        return kept

    async def _feed(self, data: bytes) -> None:
        assert self._process.stdin is not None
        await self.write(data)
        self._process.stdin.close()

    async def _drain(self, limit: int) -> None:
        """Keeps standard error moving, so that a program cannot hang on it."""
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(_CHUNK):
            if len(chunk) > limit - len(self._stderr):
                self.stop("output")
            self._stderr += chunk[: limit - len(self._stderr)]


def _reap(descriptor: int) -> None:
    """Takes the exit status of a process that this one has inherited, as process 1 does."""
    with suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOHANG)


async def readable(descriptor: int) -> None:
    """Until a descriptor can be read; a process's can be once it has ended."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    loop.add_reader(descriptor, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(descriptor)
