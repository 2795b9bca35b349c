"""How long to wait before asking again: doubling with jitter, or what the other side asks for."""

from __future__ import annotations

import random
import time
from email.utils import parsedate_to_datetime


class Backoff:
    """Waits that double, each drawn from the upper half.

    Those who were turned away together must not come back together.
    """

    def __init__(self, first_seconds: float, longest_seconds: float) -> None:
        self._first = min(first_seconds, longest_seconds)
        self._longest = longest_seconds
        self._next = self._first

    def next(self) -> float:
        """Seconds to wait now."""
        seconds, self._next = self._next, min(self._next * 2, self._longest)
        return random.uniform(seconds / 2, seconds)

    def reset(self) -> None:
        """It worked: the next trouble is another one."""
        self._next = self._first


def retry_after(value: str) -> float | None:
    """Seconds that a Retry-After header asks for, as a number or a date; None for neither."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = max(parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
        except (ValueError, OverflowError):
            return None
    return seconds if 0 <= seconds < float("inf") else None
