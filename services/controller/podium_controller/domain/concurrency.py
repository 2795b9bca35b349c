"""How many groups a job collects at once, by what the engines of its pool say of their queue.

Additive increase, multiplicative decrease (AIMD), as TCP has it: V. Jacobson, "Congestion
avoidance and control", 1988, and RFC 5681. Between the queue at which a job grows and the one at
which it shrinks, nothing changes; so that who came first does not keep all, a job that has more
than its part of the pool shrinks at the first already, and one that has less grows up to the
second.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from podium.core.means import mean_of
from podium.inference.v1 import inference_service_pb2 as inference_pb

# Waiting requests for each place above which a queue is long: a wait of about a quarter of a
# generation's time.
_LONG = 0.25
# Below it, smoothed, a queue counts as none.
_NONE = 0.05
# What one look may say: by itself it must not stand for many.
_MOST = 2 * _LONG
# Above this part of the KV cache what runs needs what is left, for it grows.
_FULL_CACHE = 0.9
# A look's part of the smoothed view, of which half is thus of the last two.
_SMOOTHING = 0.3
_DECREASE = 0.8
# Looks between two decreases, in which the first shows: what runs is not ended for it.
_SETTLE = 5
# By its part of the pool, what a job has must have more or less of to be told apart.
_MORE, _LESS = 1.25, 0.8
# Parts of the floor by which it grows at a time; one group at least.
_STEPS_TO_DOUBLE = 8


@dataclass(frozen=True)
class PoolLoad:
    """How busy the engines of a pool are, together."""

    queue: float
    """Requests that wait for each place; of each engine at most twice what is long."""
    has_room: bool
    """Whether one more request would be computed at once."""


def pool_load(said: Iterable[inference_pb.EngineLoad | None]) -> PoolLoad | None:
    """What is to be made of what the pods say; None when none of them says what can be.

    Requests are spread over pods that are alike, so those that say nothing are taken to be as the
    others; and each has one voice, within bounds, so that none that is wrong outweighs the rest.
    """
    loads = [each for each in said if each is not None and _is_sound(each)]
    if not loads:
        return None
    queue = mean_of(min(each.waiting / each.places, _MOST) for each in loads)
    is_full = mean_of(min(each.running / each.places, 1.0) for each in loads) >= 1
    is_cramped = mean_of(min(each.kv_cache_usage, 1.0) for each in loads) > _FULL_CACHE
    # Who waits for weights is no sign of a long queue, nor is the engine's rest one of room.
    is_exchanged = any(each.held for each in loads)
    return PoolLoad(queue, not (is_full or is_cramped or is_exchanged))


def _is_sound(load: inference_pb.EngineLoad) -> bool:
    numbers = (load.running, load.waiting, load.held, load.kv_cache_usage)
    return load.places > 0 and all(math.isfinite(each) and each >= 0 for each in numbers)


class ConcurrencyLimit:
    """The number of groups that one job may collect at once."""

    def __init__(self, floor: int, ceiling: int) -> None:
        """It begins at `floor`, and stays from there to `ceiling`."""
        self._floor = min(floor, ceiling)
        self._ceiling = ceiling
        self._limit = self._floor
        self._queue = 0.0
        self._looks = 0
        """Since it was made less."""

    @property
    def groups(self) -> int:
        """The number."""
        return self._limit

    def lift(self) -> None:
        """As far as it goes: nobody says what would bound it."""
        self._limit = self._ceiling

    def look(self, load: PoolLoad, collected: int, part: float = 1.0) -> None:
        """Takes in how busy the pool is, while `collected` of the job's groups are there.

        `part` is what the job has there by what of it is its part; 1 for a job alone.

        It grows only while it is what bounds them, and shrinks from what is there, as TCP's window
        does (RFC 7661, RFC 5681): else it would say nothing when it is needed.
        """
        self._looks += 1
        self._queue += _SMOOTHING * (load.queue - self._queue)
        if self._queue > (_NONE if part > _MORE else _LONG):
            if collected and self._looks > _SETTLE:
                fewer = math.floor(_DECREASE * min(collected, self._limit))
                self._limit = max(self._floor, fewer)
                self._looks = 0
        elif collected >= self._limit and (part < _LESS or (load.has_room and self._queue < _NONE)):
            more = max(1, self._floor // _STEPS_TO_DOUBLE)
            self._limit = min(self._ceiling, self._limit + more)
