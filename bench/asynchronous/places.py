"""A stub engine with so many places: what finds none waits its turn in a queue, as in vLLM."""

from __future__ import annotations

import asyncio

from podium.inference.v1 import inference_service_pb2 as inference_pb


class Places:
    """Requests that have one, and those that wait for one."""

    def __init__(self, places: int) -> None:
        """A request takes as long beside others as alone."""
        self._most = places
        self._free = asyncio.Semaphore(places)
        self._waiting = 0
        self._running = 0
        self.waited: list[float] = []
        """Seconds in the queue, of each request that ran."""
        self.busy = 0.0
        """Seconds of all places that a request had one."""

    async def compute(self, seconds: float) -> None:
        """One request."""
        clock = asyncio.get_running_loop().time
        came = clock()
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        began = clock()
        self.waited.append(began - came)
        self._running += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            self._running -= 1
            self.busy += clock() - began
            self._free.release()

    def load(self) -> inference_pb.EngineLoad:
        """What it says of itself."""
        return inference_pb.EngineLoad(
            running=self._running, waiting=self._waiting, places=self._most
        )
