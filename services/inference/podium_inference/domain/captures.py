"""Calls of the OpenAI API under a rollout's key, kept until their rollout is over.

In memory, bounded in calls, tokens and age. A key loses all of its calls or
none: half a rollout is of no use, and whoever asks for it is told.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from podium.core.errors import DataLossError, NotFoundError
from podium.inference.v1 import inference_service_pb2 as pb

from podium_inference.domain import metrics

_REMEMBERED_DROPS = 100_000
_LINGER_SECONDS = 60.0
"""How long what was taken is kept for a taker whose answer was lost."""


@dataclass
class _Rollout:
    """The calls of one key, each serialised: a tenth of what Python objects would take."""

    calls: list[bytes] = field(default_factory=list)
    tokens: int = 0
    last: float = 0.0


class Captures:
    """What was captured, by key. Of one event loop."""

    def __init__(
        self,
        max_calls: int,
        max_tokens: int,
        max_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """What is kept at most, over all keys; `max_seconds` after a key's last call."""
        self._max_calls = max_calls
        self._max_tokens = max_tokens
        self._max_seconds = max_seconds
        self._clock = clock
        # In the order of their last calls.
        self._rollouts: OrderedDict[str, _Rollout] = OrderedDict()
        # When they were last taken, in that order.
        self._taken: OrderedDict[str, float] = OrderedDict()
        self._dropped: OrderedDict[str, int] = OrderedDict()
        self._calls = 0
        self._tokens = 0

    def add(self, key: str, call: pb.CapturedCall) -> None:
        """Keeps a call that has ended; makes room by dropping the keys longest unused."""
        if key in self._dropped:
            self._remember_drop(key, 1)
            return
        tokens = len(call.prompt_token_ids) + len(call.generation.token_ids)
        rollout = self._rollouts.setdefault(key, _Rollout())
        self._rollouts.move_to_end(key)
        rollout.calls.append(call.SerializeToString())
        rollout.tokens += tokens
        rollout.last = self._clock()
        self._taken.pop(key, None)
        self._calls += 1
        self._tokens += tokens
        metrics.CAPTURED_CALLS.inc()
        self._make_room()

    def take(self, key: str) -> Sequence[bytes]:
        """The key's calls, oldest first, as serialised CapturedCall.

        Raises:
            NotFoundError: NOTHING_CAPTURED.
            DataLossError: CAPTURE_DROPPED.
        """
        self._make_room()
        if key in self._dropped:
            raise DataLossError(
                f"{self._dropped[key]} calls under this key were dropped: there were too many"
                " calls, or they were not taken in time; sample them again",
                reason="CAPTURE_DROPPED",
            )
        rollout = self._rollouts.get(key)
        if rollout is None:
            raise NotFoundError(
                "no call has come with this key since the inference service started",
                reason="NOTHING_CAPTURED",
            )
        self._taken[key] = self._clock()
        self._taken.move_to_end(key)
        return list(rollout.calls)

    def _make_room(self) -> None:
        now = self._clock()
        while self._taken and now - next(iter(self._taken.values())) > _LINGER_SECONDS:
            self._forget(next(iter(self._taken)))
        while self._rollouts:
            key, rollout = next(iter(self._rollouts.items()))
            if now - rollout.last > self._max_seconds:
                self._forget(key)
            elif self._calls > self._max_calls or self._tokens > self._max_tokens:
                self._forget(next(iter(self._taken), key))
            else:
                break
        metrics.CAPTURED_TOKENS.set(self._tokens)

    def _forget(self, key: str) -> None:
        rollout = self._rollouts.pop(key)
        self._calls -= len(rollout.calls)
        self._tokens -= rollout.tokens
        if self._taken.pop(key, None) is None:
            metrics.DROPPED_CALLS.inc(len(rollout.calls))
            self._remember_drop(key, len(rollout.calls))

    def _remember_drop(self, key: str, calls: int) -> None:
        self._dropped[key] = self._dropped.get(key, 0) + calls
        self._dropped.move_to_end(key)
        while len(self._dropped) > _REMEMBERED_DROPS:
            self._dropped.popitem(last=False)
