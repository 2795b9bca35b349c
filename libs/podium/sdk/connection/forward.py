"""One `kubectl port-forward`, for as long as a client uses it."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import grpc

from podium.core.errors import PodiumError, UnavailableError
from podium.local.launcher import trampoline
from podium.sdk.connection.kubectl import Kubectl, failure, said

_START_SECONDS = 60.0
_CONNECT_SECONDS = 30.0
_PATIENCE_SECONDS = 2.0
_AGAIN_SECONDS = 2.0
_READY = re.compile(r"^Forwarding from 127\.0\.0\.1:\d+")
# What says that the pod behind it is gone; some kubectls stay and forward to nothing.
_BROKEN = ("lost connection to pod", "error forwarding port", "an error occurred forwarding")


class Forward:
    """A port of this machine that leads to a Service's, from its first use to `close`.

    kubectl ends with the pod that it chose; the next `open` starts it again, at the same port.
    On Linux it ends with this process too, however that ends; elsewhere `close` ends it.
    """

    def __init__(self, kubectl: Kubectl, service: Callable[[], Awaitable[str]], port: int) -> None:
        """`service` finds the Service's name; nothing is started yet."""
        self._kubectl = kubectl
        self._service = service
        self._port = port
        self._local_port = _free_port()
        self._process: asyncio.subprocess.Process | None = None
        self._ended: asyncio.Task[None] | None = None
        self._kept: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._words = ""

    @property
    def address(self) -> str:
        """`host:port` on this machine."""
        return f"127.0.0.1:{self._local_port}"

    async def open(self) -> bool:
        """Starts kubectl unless it runs; whether it was started.

        Raises:
            PodiumError: why it cannot, with kubectl's words.
        """
        async with self._lock:
            if self._ended is not None and not self._ended.done():
                return False
            await self._start()
            return True

    async def connect(
        self, channel: grpc.aio.Channel, why_not: Callable[[], Awaitable[None]]
    ) -> None:
        """Waits until a channel to `address` is connected.

        `why_not` is called when that takes long: it raises the reason if it finds one.

        Raises:
            UnavailableError: nothing answers, with kubectl's words.
        """
        ready = asyncio.ensure_future(channel.channel_ready())
        waiting = [ready, self._ended] if self._ended else [ready]
        try:
            done, _ = await asyncio.wait(
                waiting, timeout=_PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                await why_not()
                await asyncio.wait(
                    waiting, timeout=_CONNECT_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
            if not ready.done():
                words = f" (kubectl: {self._words})" if self._words else ""
                raise UnavailableError(
                    f"nothing answers at port {self._port} of the Service{words}",
                    reason="FORWARD_BROKEN",
                )
        finally:
            ready.cancel()

    def keep(self) -> None:
        """Has it started again whenever it ends: for connections that nobody opens through here."""
        if self._kept is None:
            self._kept = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Ends kubectl. Idempotent."""
        if self._kept is not None:
            self._kept.cancel()
            with suppress(asyncio.CancelledError):
                await self._kept
            self._kept = None
        async with self._lock:
            _stop(self._process)
            if self._ended is not None:
                await self._ended
            self._process = self._ended = None

    async def _start(self) -> None:
        service = await self._service()
        command = self._kubectl.command(
            "port-forward",
            "--address=127.0.0.1",
            f"service/{service}",
            f"{self._local_port}:{self._port}",
        )
        process = await asyncio.create_subprocess_exec(
            # Ends kubectl with this process, on Linux.
            *(sys.executable, "-I", "-S", str(Path(trampoline.__file__)), str(os.getpid())),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # A terminal's Ctrl-C is the client's, which may have calls to finish.
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(_START_SECONDS):
                words = await _until_ready(process)
        except BaseException as error:
            _stop(process)
            if isinstance(error, TimeoutError):
                raise UnavailableError(
                    f"kubectl port-forward to {service} is not ready after "
                    f"{_START_SECONDS:g} seconds",
                    reason="FORWARD_TIMEOUT",
                ) from None
            raise
        if words is not None:
            raise failure(words, UnavailableError)
        self._process, self._words = process, ""
        self._ended = asyncio.create_task(self._read(process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Reads to its end: kubectl prints a line a connection, and stops when nobody reads."""
        assert process.stdout is not None
        async for raw in process.stdout:
            line = raw.decode(errors="replace").strip()
            if any(sign in line for sign in _BROKEN):
                # The first one has the cause.
                self._words = self._words or line.rpartition('err="')[2].rstrip('"')
                _stop(process)
        await process.wait()

    async def _keep(self) -> None:
        while True:
            if self._ended is not None:
                await asyncio.wait([self._ended])
            with suppress(PodiumError):
                await self.open()
                continue
            await asyncio.sleep(_AGAIN_SECONDS)


async def _until_ready(process: asyncio.subprocess.Process) -> str | None:
    """None once it forwards; what it said, when it ended instead."""
    assert process.stdout is not None
    seen = b""
    async for raw in process.stdout:
        if _READY.match(raw.decode(errors="replace")):
            return None
        seen += raw
    await process.wait()
    return said(seen)


def _stop(process: asyncio.subprocess.Process | None) -> None:
    if process is not None and process.returncode is None:
        with suppress(ProcessLookupError):
            process.terminate()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
