"""How many generations this process has, and how busy its engine says to be with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from podium.core.errors import ResourceExhaustedError
from podium.inference.v1 import inference_service_pb2 as pb

from podium_inference.domain import metrics


class Requests:
    """Those of one engine, whoever asked for them."""

    def __init__(self, most: int) -> None:
        """`most` may be there at once."""
        self._most = most
        self._all = 0
        self._inside = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """One more while the block runs.

        Raises:
            ResourceExhaustedError: QUEUE_FULL.
        """
        if self._all >= self._most:
            raise ResourceExhaustedError(
                f"{self._all} requests are running or waiting", reason="QUEUE_FULL"
            )
        self._all += 1
        try:
            yield
        finally:
            self._all -= 1

    @contextmanager
    def inside(self) -> Iterator[None]:
        """The engine has it while the block runs."""
        self._inside += 1
        metrics.RUNNING.inc()
        try:
            yield
        finally:
            metrics.RUNNING.dec()
            self._inside -= 1

    def load(self, said: pb.EngineLoad) -> pb.EngineLoad:
        """What the engine said of its last step, as far as it still can be so.

        It says nothing of a step that it does not take: where all were aborted, what it said last
        would stand until the next request.
        """
        running = min(said.running, self._inside)
        return pb.EngineLoad(
            running=running,
            waiting=min(said.waiting, self._inside - running),
            held=self._all - self._inside,
            places=said.places,
            kv_cache_usage=said.kv_cache_usage if self._inside else 0.0,
        )
