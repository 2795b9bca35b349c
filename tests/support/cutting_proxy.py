"""A TCP proxy that cuts its connections when a test says so."""

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

    def cut(self) -> None:
        """Resets every connection."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _connected(self, near: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        if self.refuses:
            answer.transport.abort()
            return
        far, ask = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [answer, ask]
        await asyncio.gather(_copy(near, ask), _copy(far, answer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
