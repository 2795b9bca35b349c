"""A TCP proxy that cuts its connections, or holds what they carry, when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class CuttingProxy:
    """Forwards bytes to a port of this machine."""

    def __init__(self, port: int) -> None:
        """Nothing listens yet."""
        self.address = ""
        self.refuses = False
        """Cuts new connections at once."""
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self._room: int | None = None
        self._flows = asyncio.Event()
        self._flows.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Listens at `address` while the block runs."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield
        finally:
            server.close()
            self.cut()

    def hold_after(self, count: int) -> None:
        """From now on so many bytes pass, both ways together, and none after them."""
        self._room = count
        self._flows.clear()

    def release(self) -> None:
        """Everything passes again."""
        self._room = None
        self._flows.set()

    def cut(self) -> None:
        """Resets every connection."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _connected(self, near: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        if self.refuses:
            answer.transport.abort()
            return
        try:
            far, ask = await asyncio.open_connection("127.0.0.1", self._port)
        except ConnectionError:
            # Who is behind it is away, as whoever called it directly would hear.
            answer.transport.abort()
            return
        self._writers += [answer, ask]
        await asyncio.gather(self._copy(near, ask), self._copy(far, answer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if self._room is not None:
                    self._room -= len(data)
                    if self._room < 0:
                        await self._flows.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
