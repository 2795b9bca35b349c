"""Where the time of a step goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch


def done_by(device: torch.device) -> Callable[[], None]:
    """Returns when `device` has done what it was given: a GPU computes behind the program."""
    if device.type == "cuda":
        return partial(torch.cuda.synchronize, device)
    return lambda: None


class Phases:
    """Seconds by phase."""

    def __init__(self, done: Callable[[], None] = lambda: None) -> None:
        """`done` returns when what was begun is done; see `done_by`."""
        self.seconds: dict[str, float] = {}
        self._done = done

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Adds the time inside to phase `name`."""
        self._done()
        start = time.perf_counter()
        try:
            yield
            # Not after an error, which the device itself may have raised.
            self._done()
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
