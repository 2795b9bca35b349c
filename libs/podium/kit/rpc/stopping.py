"""The end of a gRPC server that several may ask for."""

from __future__ import annotations

import asyncio

import grpc


class Stopping:
    """Stops a server once, and cuts that short once.

    Of `grpc.aio.Server.stop` a second call may run beside the first, with no grace at all. A third,
    or one with a grace of 0, can reach for what another has freed already, and the process dies
    of a segmentation fault (grpcio 1.85).
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        """Nothing is stopped yet."""
        self._server = server
        self._tasks: list[asyncio.Task[None]] = []
        self._is_cut = False

    async def stop(self, grace: float) -> None:
        """Returns when the server has ended.

        Args:
            grace: seconds that running calls have; 0 for none, whoever gave them some before. What
                is above 0 counts the first time only.
        """
        if not self._tasks or not (grace or self._is_cut):
            self._is_cut = not grace
            self._tasks.append(asyncio.create_task(self._server.stop(grace or None)))
        await asyncio.wait(self._tasks)
        for task in self._tasks:
            task.result()
