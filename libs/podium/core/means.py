"""Sums and means of numbers that environments and judges tell: whatever they are, none raises.

`math.fsum`, and so `statistics.fmean`, raise where a sum is beyond a double, and where infinities
of both signs meet: two attempts with a metric of 1e308 are enough.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable

MOST_SQUARED = 1e100
"""Up to it a square, and what is made of many squares, are far from where numbers end."""

_UNIT = 2.0**64
"""Of the sum where it is beyond a double, at its end or on the way: a power of two is exact."""


def total_of(values: Iterable[float]) -> float:
    """The sum, exactly rounded: infinite beyond a double, NaN where infinities cancel."""
    held = list(values)
    try:
        return math.fsum(held)
    except (OverflowError, ValueError):
        return _units_of(held) * _UNIT


def mean_of(values: Iterable[float]) -> float:
    """The mean of at least one value: finite where all are, NaN where infinities cancel."""
    held = list(values)
    try:
        return math.fsum(held) / len(held)
    except (OverflowError, ValueError):
        units = _units_of(held)
    if not math.isfinite(units):
        return units
    # Rounded up, that of the greatest numbers is beyond them.
    most = sys.float_info.max
    return max(-most, min(most, units / len(held) * _UNIT))


def unit_of(largest: float) -> float:
    """In which numbers up to `largest` are at most `MOST_SQUARED`; 1 where they are.

    A power of two, so that counting in it rounds nothing.
    """
    if largest <= MOST_SQUARED:
        return 1.0
    return math.ldexp(1.0, math.frexp(largest / MOST_SQUARED)[1])


def _units_of(values: list[float]) -> float:
    if infinite := [value for value in values if not math.isfinite(value)]:
        return sum(infinite)
    return math.fsum(value / _UNIT for value in values)
