"""A shared trainer's time, divided among the jobs whose calls are in flight there."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class TimeShare:
    """Time in which nobody's call is in flight is nobody's (docs/decisions/0066)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is in seconds."""
        self._clock = clock
        self._since = clock()
        self._calls: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def call(self, job_id: str) -> Iterator[None]:
        """A call of a job is in flight inside; several of one job count once."""
        self._divide()
        self._calls[job_id] += 1
        try:
            yield
        finally:
            self._divide()
            self._calls[job_id] -= 1
            if not self._calls[job_id]:
                del self._calls[job_id]

    def take(self, job_id: str) -> float:
        """A job's seconds since they were taken last."""
        self._divide()
        return self._seconds.pop(job_id, 0.0)

    def _divide(self) -> None:
        now = self._clock()
        took, self._since = now - self._since, now
        for job_id in self._calls:
            self._seconds[job_id] += took / len(self._calls)
