"""The metrics of a service with worker processes: its own, and each worker's with its number.

A worker's series have the label `worker`, so that one that is started anew begins its own again,
as a pod's do, and sums over them stay right.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Iterable

from prometheus_client import REGISTRY, CollectorRegistry, Metric
from prometheus_client.samples import Exemplar, Sample

logger = logging.getLogger(__name__)

Ask = Callable[[], Coroutine[None, None, dict[int, bytes]]]
"""What each worker shows, by its number."""

_OF_THE_FRONT = "podium_grpc_server_"
"""Every call is counted where it comes in."""
_SECONDS = 5.0


def shown() -> bytes:
    """This process's metrics, for `WorkersRegistry`."""
    # Not as Prometheus reads them: a strict reader takes no histogram that may be below zero.
    return json.dumps(
        [
            [metric.name, metric.documentation, metric.type, [*map(list, metric.samples)]]
            for metric in REGISTRY.collect()
            if not metric.name.startswith(_OF_THE_FRONT)
        ]
    ).encode()


class WorkersRegistry(CollectorRegistry):
    """Asks the workers at each scrape; those that do not answer are not in it."""

    def __init__(self) -> None:
        """Nobody is asked yet."""
        super().__init__()
        self._ask: tuple[asyncio.AbstractEventLoop, Ask] | None = None

    def asks(self, ask: Ask) -> None:
        """From now on, on this event loop; scrapes come in threads of their own."""
        self._ask = asyncio.get_running_loop(), ask

    def collect(self) -> Iterable[Metric]:
        """See `CollectorRegistry`."""
        found: dict[str, Metric] = {}
        for metric in REGISTRY.collect():
            whole = found[metric.name] = Metric(metric.name, metric.documentation, metric.type)
            whole.samples = list(metric.samples)
        for number, text in sorted(self._texts().items()):
            for name, documentation, kind, samples in json.loads(text):
                whole = found.setdefault(name, Metric(name, documentation, kind))
                whole.samples += [_sample(number, *sample) for sample in samples]
        return found.values()

    def _texts(self) -> dict[int, bytes]:
        if self._ask is None:
            return {}
        loop, ask = self._ask
        asking = asyncio.run_coroutine_threadsafe(ask(), loop)
        try:
            return asking.result(_SECONDS)
        except TimeoutError:
            asking.cancel()
            logger.warning("the workers' metrics did not come in time")
            return {}


def _sample(
    worker: int,
    name: str,
    labels: dict[str, str],
    value: float,
    timestamp: float | None,
    exemplar: tuple[dict[str, str], float, float | None] | None,
    _: object,
) -> Sample:
    told = None if exemplar is None else Exemplar(*exemplar)
    return Sample(name, {**labels, "worker": str(worker)}, value, timestamp, told)
