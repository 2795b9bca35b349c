"""Answers that are known already, and questions that are being asked already."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from podium_judge.domain import metrics
from podium_judge.domain.opinion import Opinion
from podium_judge.domain.scores import Usage


@dataclass
class _Flight:
    """A question that is being asked, for one or more callers."""

    task: asyncio.Task[Opinion]
    waiting: int = 0
    paid: bool = False


class OpinionCache:
    """The last opinions that scored, by the content of their question.

    In memory, of this replica alone: a miss costs a call and changes no result.
    """

    def __init__(self, entries: int) -> None:
        """`entries` is how many are kept; with 0, only concurrent questions are shared."""
        self._entries = entries
        self._known: OrderedDict[str, Opinion] = OrderedDict()
        self._flights: dict[str, _Flight] = {}

    def knows(self, key: str) -> bool:
        """Whether the opinion under `key` costs nothing now."""
        return key in self._known

    async def get(self, key: str, ask: Callable[[], Coroutine[Any, Any, Opinion]]) -> Opinion:
        """The opinion under `key`, asked for at most once at a time.

        Its cost is reported to one caller; to the others it comes as `cached`.
        """
        if known := self._known.get(key):
            self._known.move_to_end(key)
            metrics.QUESTIONS.labels(source="cached").inc()
            return _free(known)
        flight = self._flights.get(key)
        metrics.QUESTIONS.labels(source="joined" if flight else "asked").inc()
        if flight is None:
            # A task of its own: the first caller may give up while others wait.
            flight = self._flights[key] = _Flight(asyncio.create_task(ask()))
        flight.waiting += 1
        try:
            opinion = await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if flight.task.done() or not flight.waiting:
                self._land(key, flight)
        if flight.paid:
            return _free(opinion)
        flight.paid = True
        return opinion

    def _land(self, key: str, flight: _Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
        if not flight.task.done():
            flight.task.cancel()
        elif not flight.task.cancelled() and not flight.task.exception():
            self._keep(key, flight.task.result())

    def _keep(self, key: str, opinion: Opinion) -> None:
        if opinion.failure:
            return
        self._known[key] = opinion
        while len(self._known) > self._entries:
            self._known.popitem(last=False)


def _free(opinion: Opinion) -> Opinion:
    return replace(opinion, usage=Usage(), cached=True)
