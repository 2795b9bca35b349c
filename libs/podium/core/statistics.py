"""Intervals and tests of success rates."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import product

_Z_95 = 1.959963984540054
_EXACT = 14
"""Differences up to which every choice of signs is counted."""
_DRAWS = 20_000


def wilson_interval(mean: float, n: int) -> tuple[float, float]:
    """The 95 % score interval of a proportion over `n` trials; (0, 1) for none.

    E. B. Wilson, J. Am. Stat. Assoc. 22 (1927). Unlike the normal
    approximation it stays inside [0, 1] and has a width at 0 and at 1.
    """
    if n == 0:
        return 0.0, 1.0
    z2 = _Z_95**2
    centre = (mean + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z_95 / (1 + z2 / n) * math.sqrt(mean * (1 - mean) / n + z2 / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def pass_at_k(attempts: int, successes: int, k: int) -> float:
    """The chance that of `k` attempts, drawn from these without replacement, one succeeded.

    1 - C(n-c, k) / C(n, k): the unbiased estimator of M. Chen et al., "Evaluating Large
    Language Models Trained on Code" (2021).

    Raises:
        ValueError: not 0 <= successes <= attempts, or not 1 <= k <= attempts.
    """
    if not (0 <= successes <= attempts and 1 <= k <= attempts):
        raise ValueError(f"pass@{k} of {successes} in {attempts}: k must be from 1 to {attempts}")
    return 1 - math.comb(attempts - successes, k) / math.comb(attempts, k)


def sign_flip_p_value(differences: Sequence[float]) -> float:
    """The two-sided p-value of paired differences whose mean is 0 under the null hypothesis.

    Fisher's randomisation test: under the null hypothesis each difference might as well have
    the other sign. Every choice of signs is counted for up to 14 that are not 0; for more,
    20,000 choices are drawn with a fixed seed, and the p-value is (1 + as extreme) /
    (1 + drawn), which is never below the true level (B. Phipson, G. Smyth, 2010).
    """
    values = [value for value in differences if value]
    observed = abs(math.fsum(values)) - 1e-12
    if len(values) <= _EXACT:
        signs = list(product((1, -1), repeat=len(values)))
        return sum(_is_extreme(values, each, observed) for each in signs) / len(signs)
    rng = random.Random(0)
    drawn = (rng.choices((1, -1), k=len(values)) for _ in range(_DRAWS))
    return (1 + sum(_is_extreme(values, each, observed) for each in drawn)) / (1 + _DRAWS)


def _is_extreme(values: Sequence[float], signs: Sequence[int], observed: float) -> bool:
    return abs(sum(v * s for v, s in zip(values, signs, strict=True))) >= observed
