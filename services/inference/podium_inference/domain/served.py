"""A policy version that requests may use, and the requests that do."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path


class Use:
    """One request's use of a version; of weights that change in flight it goes on to the next."""

    def __init__(self, served: Served, *, moves: bool) -> None:
        """`moves` says whether it may go on under another version."""
        self.served = served
        self.moves = moves
        self.lost = False
        """Whether the weights that it was sampled by are gone and no others came."""


@dataclass
class Served:
    """A version that is served; the base model has an empty job."""

    job: str
    version: int
    adapter: object | None = None
    weights: Path | None = None
    """The folder of its adapter or whole weights; None for the base model."""
    load_time: float = field(default_factory=time.time)
    on_demand: bool = False
    """Whether a request brought it: then it may go when it is idle and others come."""
    in_flight: bool = False
    """Whether what runs under it goes on under the next version."""
    last_used: float = field(default_factory=time.monotonic)
    uses: set[Use] = field(default_factory=set)
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while nothing runs under it."""
    movable: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while all that runs under it may go on under another version."""
    _fixed: int = 0
    held: AsyncExitStack = field(default_factory=AsyncExitStack)
    """The lease and the files, given back when it is no longer served."""

    def __post_init__(self) -> None:
        self._tell()

    @property
    def model_name(self) -> str:
        """The name on the OpenAI API; empty for the base model."""
        return f"{self.job}@{self.version}" if self.job else ""

    @property
    def running(self) -> int:
        """Requests that use it."""
        return len(self.uses)

    def enter(self, *, moves: bool) -> Use:
        """Begins a use."""
        use = Use(self, moves=moves)
        self.last_used = time.monotonic()
        self._fixed += not moves
        self.uses.add(use)
        self._tell()
        return use

    @staticmethod
    def leave(use: Use) -> None:
        """Ends a use, of whichever version it is by now."""
        served = use.served
        served._fixed -= not use.moves
        served.uses.remove(use)
        served._tell()

    def take_over(self, old: Served) -> int:
        """What runs under `old`, all of which may move, goes on here; returns how many do."""
        moved = len(old.uses)
        for use in old.uses:
            use.served = self
        self.uses |= old.uses
        old.uses.clear()
        self._tell()
        old._tell()
        return moved

    def _tell(self) -> None:
        for event, is_so in ((self.idle, not self.uses), (self.movable, not self._fixed)):
            if is_so:
                event.set()
            else:
                event.clear()
