"""Sums and means of numbers that environments and judges tell: whatever they are, none raises.

`math.fsum`, and so `statistics.fmean`, raise where a sum is beyond a double, and where infinities
of both signs meet: two attempts with a metric of 1e308 are enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterable


def total_of(values: Iterable[float]) -> float:
    """The sum, exactly rounded: infinite beyond a double, NaN where infinities cancel."""
    held = list(values)
    try:
        return math.fsum(held)
    except (OverflowError, ValueError):
        return mean_of(held) * len(held)


def mean_of(values: Iterable[float]) -> float:
    """The mean of at least one value: finite where all are, NaN where infinities cancel."""
    held = list(values)
    try:
        return math.fsum(held) / len(held)
    except OverflowError:
        # Beyond a double on the way alone.
        return math.fsum(value / len(held) for value in held)
    except ValueError:
        return math.nan
