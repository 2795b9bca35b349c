"""Repeats a call while its peer is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from podium.core.backoff import Backoff
from podium.core.errors import UnavailableError

T = TypeVar("T")

_FIRST_SECONDS = 0.1
_MOST_SECONDS = 5.0


async def retry_unavailable(
    fn: Callable[[], Awaitable[T]],
    *,
    timeout_s: float,
    on_wait: Callable[[UnavailableError, float], None] | None = None,
) -> T:
    """Repeats `fn` until it no longer raises UnavailableError.

    For callers that know that their call is safe to repeat, e.g. while a
    service restarts. Waits grow from 0.1 s to 5 s with full jitter on their
    upper half. No new attempt begins after `timeout_s` seconds; an attempt
    that runs is bounded by its own deadline.

    Args:
        on_wait: called before each wait with the error and the seconds.

    Raises:
        UnavailableError: the last one, when the time is over.
    """
    end = time.monotonic() + timeout_s
    backoff = Backoff(_FIRST_SECONDS, _MOST_SECONDS)
    while True:
        try:
            return await fn()
        except UnavailableError as error:
            left = end - time.monotonic()
            if left <= 0:
                raise
            wait = min(backoff.next(), left)
            if on_wait is not None:
                on_wait(error, wait)
        await asyncio.sleep(wait)
