"""What each of several peers was last heard to say, asked no more often than it is worth."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from podium.core.errors import PodiumError
from podium.core.tasks import cancel_and_wait

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Within this an answer is not asked for again.
_FRESH_SECONDS = 30.0
# One that is down is still known for what it said, so long.
_REMEMBER_SECONDS = 3600.0
# More than that: whoever is asked again by then has answered, or has not, in good time.
_LATELY_SECONDS = 45.0
# Between two questions to one that does not answer, when nobody waits for it.
_RETRY_SECONDS = 5.0
_ASK_SECONDS = 5.0


@dataclass(frozen=True)
class Heard(Generic[T]):
    """What is known of one peer."""

    said: T | None
    """None when it has not answered for too long, or never."""
    answers: bool
    """Whether it did when it was last asked."""
    error: str
    """Why it does not; empty of one that has not been asked yet too."""
    is_recent: bool
    """Whether that was a moment ago, and not when somebody last had a question."""


@dataclass
class _Memory(Generic[T]):
    said: T | None = None
    answered_at: float = 0.0
    asked_at: float | None = None
    error: str = ""
    asking: asyncio.Task[None] | None = None


class Hearing(Generic[T]):
    """Of peers by name. One that is down costs the others nothing."""

    def __init__(
        self,
        what: str,
        questions: Mapping[str, Callable[[], Awaitable[T]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is asked yet. `what` they are is for the log."""
        self._what = what
        self._questions = questions
        self._memories: dict[str, _Memory[T]] = {name: _Memory() for name in questions}
        self._clock = clock

    def of(self, name: str) -> Heard[T]:
        """What is known of a peer."""
        memory = self._memories[name]
        now, asked_at = self._clock(), memory.asked_at
        known = memory.said is not None and now - memory.answered_at < _REMEMBER_SECONDS
        answers = asked_at is not None and not memory.error
        is_recent = asked_at is not None and now - asked_at < _LATELY_SECONDS
        return Heard(memory.said if known else None, answers, memory.error, is_recent)

    async def ask(self) -> None:
        """Returns when every peer was asked whose answer is not fresh."""
        stale = [name for name in self._memories if not self._is_fresh(name)]
        await asyncio.gather(*(asyncio.shield(self._asking(name)) for name in stale))

    def refresh(self, on_answer: Callable[[], None]) -> None:
        """Has them asked in the background whose answer is not fresh; says when one came."""
        for name, memory in self._memories.items():
            lately = memory.asked_at is not None and (
                self._clock() - memory.asked_at < _RETRY_SECONDS
            )
            if not lately and memory.asking is None and not self._is_fresh(name):
                self._asking(name).add_done_callback(lambda _: on_answer())

    async def close(self) -> None:
        """Ends questions that are still open."""
        memories = self._memories.values()
        await cancel_and_wait(*(m.asking for m in memories if m.asking is not None))

    def _asking(self, name: str) -> asyncio.Task[None]:
        memory = self._memories[name]
        if memory.asking is None:
            memory.asking = asyncio.create_task(self._ask(name, memory), name=f"ask-{name}")
        return memory.asking

    async def _ask(self, name: str, memory: _Memory[T]) -> None:
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                memory.said = await self._questions[name]()
            memory.error = ""
            memory.answered_at = self._clock()
        except TimeoutError:
            memory.error = f"it did not answer within {_ASK_SECONDS:g} seconds"
        except PodiumError as error:
            memory.error = error.message
        finally:
            memory.asked_at = self._clock()
            memory.asking = None
        if memory.error:
            told = {"pool": name, "error": memory.error}
            logger.info("a %s does not answer", self._what, extra=told)

    def _is_fresh(self, name: str) -> bool:
        memory = self._memories[name]
        if memory.said is None or memory.error:
            return False
        return self._clock() - memory.answered_at < _FRESH_SECONDS
