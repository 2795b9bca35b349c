"""How much judges agree on a ranking."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence


def ranks(scores: Sequence[float]) -> list[float]:
    """Ranks from 1 for the least score; equal scores share the mean of their ranks."""
    order = sorted(scores)
    first = {value: order.index(value) for value in set(scores)}
    count = Counter(scores)
    return [first[value] + (count[value] + 1) / 2 for value in scores]


def kendall_w(judges: Sequence[Sequence[float]]) -> float | None:
    """Kendall's coefficient of concordance, corrected for ties, in [0, 1].

    `judges` are m rows of n scores. With R the sum of an item's ranks,
    W = (12 sum R^2 - 3 m^2 n (n + 1)^2) / (m^2 n (n^2 - 1) - m sum (t^3 - t)), t over
    the groups of equal scores of each judge (Kendall and Gibbons, Rank Correlation
    Methods, 5th ed., section 6.2-6.6; Siegel and Castellan, section 9.6). Without ties
    the mean of Spearman's correlations of all pairs is (m W - 1) / (m - 1).

    None for fewer than two judges or items, and when each judge gives all items the
    same score.
    """
    m = len(judges)
    n = len(judges[0]) if judges else 0
    if m < 2 or n < 2:
        return None
    rows = [ranks(row) for row in judges]
    ties = sum(t**3 - t for row in judges for t in Counter(row).values())
    spread = m * m * n * (n * n - 1) - m * ties
    if spread <= 0:
        return None
    squares = math.fsum(math.fsum(column) ** 2 for column in zip(*rows, strict=True))
    return max(0.0, min(1.0, (12 * squares - 3 * m * m * n * (n + 1) ** 2) / spread))
