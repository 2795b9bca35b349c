"""Position bias: whether a judge favours places in the prompt.

The order of attempts is random, so an unbiased judge's scores have nothing to do with
places. In a group of n attempts let x be the place, from 0 for the first to 1 for the
last, s the score, and T = sum (x - mean x)(s - mean s). Over the n! orders T has mean 0
and variance Sxx Sss / (n - 1), Sxx and Sss being the sums of squared deviations (the
permutation variance of a linear statistic: Hájek, Šidák and Sen, Theory of Rank Tests,
section 3.3). Groups are ordered independently, so their T and variances add up, and
z = sum T / sqrt(sum variance) is standard normal in the long run, whatever the scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

FIFTHS = 5


def _deviations(values: Sequence[float]) -> list[float]:
    mean = math.fsum(values) / len(values)
    return [value - mean for value in values]


def relative(place: int, count: int) -> float:
    """0 for the first of `count` places, which begin at 1, and 1 for the last."""
    return (place - 1) / (count - 1)


def fifth(place: int, count: int) -> int:
    """Which fifth of the prompt a place is in, from 1."""
    return min(FIFTHS, 1 + int(relative(place, count) * FIFTHS))


def correlation(places: Sequence[int], scores: Sequence[float]) -> float | None:
    """Pearson's correlation of place and score; None when all scores are equal."""
    if len(set(scores)) < 2:
        return None
    x, s = _deviations(places), _deviations(scores)
    product = math.fsum(a * b for a, b in zip(x, s, strict=True))
    norm = math.hypot(*x) * math.hypot(*s)
    return max(-1.0, min(1.0, product / norm)) if norm else None


@dataclass
class PositionBias:
    """The statistic over all groups that one judge has scored."""

    covariance: float = 0.0
    places: float = 0.0
    variance: float = 0.0

    def add(self, places: Sequence[int], scores: Sequence[float]) -> None:
        """Takes a group's distinct attempts; a single one says nothing."""
        count = len(places)
        if count < 2:
            return
        x = _deviations([relative(place, count) for place in places])
        s = _deviations(scores)
        sxx = math.fsum(a * a for a in x)
        self.covariance += math.fsum(a * b for a, b in zip(x, s, strict=True))
        self.places += sxx
        self.variance += sxx * math.fsum(b * b for b in s) / (count - 1)

    @property
    def slope(self) -> float:
        """Least-squares slope within groups: score gained from first place to last."""
        return self.covariance / self.places if self.places else 0.0

    @property
    def z(self) -> float:
        """The slope in standard deviations of an unbiased judge's."""
        return self.covariance / math.sqrt(self.variance) if self.variance else 0.0
