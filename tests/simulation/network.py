"""The network between controllers and their peers: it delays, refuses, cuts and goes on."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from podium.core.errors import DeadlineExceededError, PodiumError, UnavailableError
from podium_controller.domain.errors import DatabaseUnavailableError
from simulation.loop import PROCESS, Process, VirtualLoop
from support.fakes.wire import Later, Wire

DATABASE = "database"
REFUSED, LOST, LATE = "refused", "lost", "late"
"""What may happen to a call: it never came, its reply never came, or its deadline comes first."""

_SECONDS = {
    "database": 0.002,
    "collect": 0.3,
    "score": 0.1,
    "step": 0.5,
    "save": 0.3,
    "open": 0.4,
    "load": 0.3,
}
_HOP = 0.01
_STATE_SECONDS = 0.8
# At once, as long as a step takes, or much longer.
_BEHIND = (0.1, 1.0, 1.0, 6.0)
_SECOND_HALF = 0.2
LATE_SECONDS = 30.0


@dataclass(slots=True)
class _Member:
    """A peer as the network knows it."""

    lives: int = 0
    """How often it was lost: what was underway then is lost with it."""
    is_up: bool = True
    faults: list[str] = field(default_factory=list)
    """Of its next calls, in order."""


class Network(Wire):
    """Every call takes a while, each way, and what is underway outlives its caller."""

    def __init__(self, loop: VirtualLoop, seed: int, *, jitter: float) -> None:
        """Each delay is the usual one times up to `1 + jitter`."""
        self._loop = loop
        draw = random.Random(seed)
        self._random, self._choice = draw.random, draw.choice
        self._jitter = jitter
        self.members: dict[str, _Member] = {}
        self.cut_off: set[Process] = set()
        """Who cannot reach the database."""
        self.transact = functools.partial(self.call, DATABASE, DATABASE)
        """A transaction of the database."""

    def member(self, peer: str) -> _Member:
        found = self.members.get(peer)
        if found is None:
            found = self.members[peer] = _Member()
        return found

    def lose(self, peer: str) -> None:
        """The peer is away, and what was underway is cut."""
        member = self.member(peer)
        member.is_up = False
        member.lives += 1

    def restore(self, peer: str) -> None:
        """The peer is there again."""
        self.member(peer).is_up = True

    def reach(self, peer: str) -> None:
        """See `Wire`."""
        if not self.member(peer).is_up:
            raise _away(peer)

    def behind(self, peer: str, work: Callable[[], Any]) -> None:
        """See `Wire`."""
        member = self.member(peer)
        lives = member.lives

        def done() -> None:
            if member.is_up and member.lives == lives:
                work()

        self.later(_STATE_SECONDS * self._choice(_BEHIND), done)

    async def call(self, peer: str, method: str, handle: Callable[[], Any]) -> Any:
        """See `Wire`."""
        process = PROCESS.get(None)
        if process is not None and not process.alive:
            raise asyncio.CancelledError
        call = _Call(self, peer, method, handle, process)
        try:
            return await call.answer
        except asyncio.CancelledError:
            if peer == DATABASE:
                call.leave()
            raise

    def delay(self, seconds: float) -> float:
        """The usual delay, more or less."""
        return seconds * (1 + self._random() * self._jitter)

    def later(self, seconds: float, callback: Callable[[], Any]) -> None:
        """Calls outside of every process, after the usual delay, more or less."""
        self._loop.world(seconds * (1 + self._random() * self._jitter), callback)

    def is_heads(self) -> bool:
        """By the toss of a coin."""
        return self._random() < 0.5


class _Call:
    """One call on its way there, at work, and on its way back."""

    __slots__ = (
        "_error",
        "_fault",
        "_handle",
        "_is_over",
        "_lives",
        "_member",
        "_network",
        "_pause",
        "_peer",
        "_result",
        "answer",
    )

    def __init__(
        self,
        network: Network,
        peer: str,
        method: str,
        handle: Callable[[], Any],
        process: Process | None,
    ) -> None:
        self._network = network
        self._peer = peer
        self._handle = handle
        self._member = member = network.members.get(peer) or network.member(peer)
        self._lives = member.lives
        self._fault = fault = member.faults.pop(0) if member.faults else ""
        self.answer: asyncio.Future[Any] = asyncio.Future(loop=network._loop)
        seconds = _SECONDS.get(method, _HOP)
        self._is_over = False
        if peer == DATABASE:
            if process in network.cut_off:
                self._fault = REFUSED
        else:
            self._pause = _SECOND_HALF
            if fault == LATE:
                # The peer does it all the same, long after the caller has given up.
                network.later(seconds, self._give_up)
                # Before it does anything, or in the middle: a version that is being stored.
                if not network.is_heads():
                    self._pause = network.delay(LATE_SECONDS / 2)
                else:
                    seconds = network.delay(LATE_SECONDS / 2)
        network.later(seconds, self._work)

    def leave(self) -> None:
        """Its caller is cancelled. A transaction whose commit was on its way holds its locks until
        it is done, so that no later one comes before it; any other is never done."""
        if not self._is_over and self._network.is_heads():
            self._work()
        self._is_over = True

    def _give_up(self) -> None:
        self._reply(None, DeadlineExceededError(f"{self._peer} took too long"))

    def _work(self) -> None:
        if self._is_over:
            return
        member = self._member
        if self._fault == REFUSED or not member.is_up or member.lives != self._lives:
            self._reply(None, _away(self._peer))
            return
        if self._peer == DATABASE:
            self._is_over = True
        # A caller that went away may have been heard before, or not.
        elif self.answer.cancelled() and self._network.is_heads():
            return
        result, error = None, None
        try:
            result = self._handle()
        except PodiumError as raised:
            error = raised
        if isinstance(result, Later):
            self._handle = result.work
            self._network.later(self._pause, self._work)
            return
        if self._fault == LOST:
            error = _away(self._peer)
        if self._peer != DATABASE:
            self._result, self._error = result, error
            self._network.later(_HOP, self._arrive)
        # What commits late holds its locks until then; to others it came in time.
        elif self._fault == LATE:
            self._network._loop.world(LATE_SECONDS, lambda: self._reply(None, _away(DATABASE)))
        else:
            self._reply(result, error)

    def _arrive(self) -> None:
        member = self._member
        is_there = member.is_up and member.lives == self._lives
        self._reply(self._result, self._error if is_there else _away(self._peer))

    def _reply(self, result: Any, error: PodiumError | None) -> None:
        if self.answer.done():
            return
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(result)


def _away(peer: str) -> UnavailableError:
    if peer == DATABASE:
        return DatabaseUnavailableError("the database cannot be reached")
    return UnavailableError(f"{peer} cannot be reached", metadata={"peer": peer})
