"""Whether rewards differ, or are alike but for the noise of floating point."""

from __future__ import annotations

from collections.abc import Sequence

VARIANCE_TOLERANCE = 1e-6
"""Rewards whose range is at most this, relative to the greatest magnitude or 1, are equal."""


def alike(values: Sequence[float]) -> bool:
    """Whether finite numbers are all equal; none are, and so is one."""
    if len(values) < 2:
        return True
    least, most = min(values), max(values)
    return most - least <= VARIANCE_TOLERANCE * max(1.0, abs(least), abs(most))
