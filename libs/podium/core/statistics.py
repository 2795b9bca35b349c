"""Intervals and tests of success rates and rewards.

Attempts at one scenario resemble each other, so scenarios, not attempts, are what is independent:
the intervals here are of clusters. `python -m bench.intervals` simulates how often they hold the
truth.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence
from itertools import chain, product

from podium.core.means import unit_of

_Z_95 = 1.959963984540054
_T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t, two-sided 95 %, for 1 to 9 degrees of freedom."""
_EXACT = 14
"""Differences up to which every choice of signs is counted."""
_DRAWS = 20_000
_PRIOR = 2.0
"""How much a variance is drawn to the greatest one, where it has few clusters to be told from."""


def wilson_interval(mean: float, n: float) -> tuple[float, float]:
    """The 95 % score interval of a proportion over `n` independent trials; (0, 1) for none.

    E. B. Wilson, J. Am. Stat. Assoc. 22 (1927). Unlike the normal
    approximation it stays inside [0, 1] and has a width at 0 and at 1.
    """
    if n == 0:
        return 0.0, 1.0
    z2 = _Z_95**2
    centre = (mean + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z_95 / (1 + z2 / n) * math.sqrt(mean * (1 - mean) / n + z2 / (4 * n * n))
    # At 0 and at 1 rounding alone would leave the proportion outside.
    return min(mean, max(0.0, centre - half)), max(mean, min(1.0, centre + half))


def clustered_proportion_interval(clusters: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The 95 % interval of a proportion from `clusters` of values in [0, 1]; (0, 1) for none.

    Wilson's interval with the effective number of trials p (1 - p) / Var(p), at most that of the
    trials, where the variance is that of a ratio estimator between clusters (see `_variance`),
    times (z / t)² for its degrees of freedom: E. Korn and B. Graubard, Survey Methodology 24
    (1998). A single cluster tells nothing of others: it counts as one trial.
    """
    clusters = [cluster for cluster in clusters if cluster]
    return _score_interval(clusters, sum(map(len, clusters)))


def clustered_share_interval(clusters: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The 95 % interval of the mean of shares in [0, 1], such as won comparisons; (0, 1) for none.

    As `clustered_proportion_interval`, of values that are no single trials: ties, and means over
    the other side's attempts, vary less than p (1 - p). So the effective number of trials may
    exceed that of the values; the designs of N. Dean and M. Pagano, J. Surv. Stat. Methodol. 3
    (2015), whose Wilson interval this is, have effects on either side of 1. Where all clusters
    have the same mean, which leaves nothing to estimate a variance from, the clusters count.
    """
    return _score_interval([cluster for cluster in clusters if cluster], math.inf)


def clustered_mean_interval(
    clusters: Sequence[Sequence[float]], successes: Sequence[Sequence[float]] | None = None
) -> tuple[float, float] | None:
    """The 95 % interval of a mean from `clusters` of values; None for fewer than two clusters.

    Student's t with the variance of a ratio estimator between clusters: W. Cochran, Sampling
    Techniques (1977), section 6.4. Its degrees of freedom are those with which that variance is
    known (see `_freedom`). Of values of two kinds it is that of a proportion between them, and
    where all are one, of one between 0 and 1 or the value itself: t would be too narrow where one
    kind is rare, and without width where it did not come.

    Values beyond 1e100 are counted in a greater unit, so that their squares are numbers. None where
    a value is not finite.

    With the `successes` of these attempts, each from 0 to 1, more than two values have the
    interval of success in theirs (see `_interval_of_kinds`), for the same reason.

    Raises:
        ValueError: `successes` are not one for each value.
    """
    if successes is not None:
        if list(map(len, successes)) != list(map(len, clusters)):
            raise ValueError("successes must be one for each value")
        successes = [each for each in successes if each]
    clusters = [cluster for cluster in clusters if cluster]
    every = list(chain.from_iterable(clusters))
    if len(clusters) < 2 or not all(map(math.isfinite, every)):
        return None
    if (unit := unit_of(_largest(every))) > 1:
        clusters = [[value / unit for value in cluster] for cluster in clusters]
    plain = _interval_of_values(clusters)
    low, high = plain if successes is None else _interval_of_kinds(clusters, successes, plain)
    return low * unit, high * unit


def _interval_of_values(clusters: Sequence[Sequence[float]]) -> tuple[float, float]:
    values = {value for cluster in clusters for value in cluster}
    if len(values) <= 2:
        return _interval_of_two(clusters, min(values), max(values))
    mean = _mean(clusters)
    half = _half_width(clusters, mean, 0.0)
    return mean - half, mean + half


def _interval_of_kinds(
    clusters: Sequence[Sequence[float]],
    successes: Sequence[Sequence[float]],
    plain: tuple[float, float],
) -> tuple[float, float]:
    """Of a mean p a + (1 - p) b, with a and b the means of successes and of failures.

    Each end is as far from the mean as the root of the sum of two squares: of what the end of the
    interval of p is worth, (a - b) times its distance from p, and of the half width of the values
    less their kind's mean. G. Zou and A. Donner, Statistics in Medicine 27 (2008). The second has
    at least what p leaves of the variance between clusters, for easy scenarios may pay more.
    Where a kind did not come, its mean is the best or worst that may be (see `_unseen`), and the
    second is `plain`, the interval without kinds.
    """
    pairs = [
        list(zip(cluster, kinds, strict=True))
        for cluster, kinds in zip(clusters, successes, strict=True)
    ]
    every = list(chain.from_iterable(pairs))
    values = {value for value, _ in every}
    least, greatest = _unseen(values)
    won, lost = math.fsum(share for _, share in every), math.fsum(1 - share for _, share in every)
    missing = {greatest} if not won else {least} if not lost else set()
    # Two values, or one and what may yet come, are a proportion's.
    if len(values | missing) <= 2:
        return plain
    paid = math.fsum(value * share for value, share in every) / won if won else greatest
    unpaid = math.fsum(value * (1 - share) for value, share in every) / lost if lost else least
    mean, rate, gap = _mean(clusters), _mean(successes), paid - unpaid
    if missing:
        below, above = mean - plain[0], plain[1] - mean
    else:
        rests = [[v - share * paid - (1 - share) * unpaid for v, share in each] for each in pairs]
        left = _ratio_variance(clusters, mean) - gap * gap * _ratio_variance(successes, rate)
        below = above = _half_width(rests, 0.0, left)
    ends = sorted(gap * (end - rate) for end in clustered_proportion_interval(successes))
    return mean - math.hypot(ends[0], below), mean + math.hypot(ends[1], above)


def _unseen(values: Collection[float]) -> tuple[float, float]:
    """The worst that a failure may bring and the best that a success may, where none came.

    Rewards within 0 to 1, or within -1 to 1, may have all of that. Of others nothing is known
    beyond what came.
    """
    least, greatest = min(values), max(values)
    if least < -1 or greatest > 1:
        return least, greatest
    return (-1.0 if least < 0 else 0.0), 1.0


def _mean(clusters: Sequence[Sequence[float]]) -> float:
    return math.fsum(map(math.fsum, clusters)) / sum(map(len, clusters))


def _half_width(clusters: Sequence[Sequence[float]], mean: float, least: float) -> float:
    """Student's, of a mean whose variance is at least `least`."""
    residuals = [math.fsum(cluster) - mean * len(cluster) for cluster in clusters]
    return _t_95(_freedom(residuals)) * math.sqrt(max(_ratio_variance(clusters, mean), least))


def _interval_of_two(
    clusters: Sequence[Sequence[float]], least: float, greatest: float
) -> tuple[float, float]:
    if least == greatest:
        least, greatest = min(0.0, least), max(1.0, greatest)
    scale = greatest - least
    shares = [[(value - least) / scale for value in cluster] for cluster in clusters]
    low, high = clustered_proportion_interval(shares)
    return least + scale * low, least + scale * high


def _freedom(residuals: Sequence[float]) -> float:
    """Degrees of freedom of a variance from residuals, at most their count less 1.

    2 n / (kurtosis - 1), with which a chi-squared has the variance that such an estimate has: F.
    Satterthwaite, Biometrics Bulletin 2 (1946). Of rewards that are rare and large they are few.
    """
    count = len(residuals)
    largest = max(map(abs, residuals))
    if not largest:
        return count - 1
    squares = [(each / largest) ** 2 for each in residuals]
    second = math.fsum(squares) / count
    excess = math.fsum(each * each for each in squares) / count / second**2 - 1
    return count - 1 if excess <= 0 else max(1.0, min(count - 1, 2 * count / excess))


def _score_interval(clusters: Sequence[Sequence[float]], most: float) -> tuple[float, float]:
    """Wilson's of clusters that have values; `most` bounds the effective number of trials."""
    count, trials = len(clusters), sum(map(len, clusters))
    if not trials:
        return 0.0, 1.0
    mean = min(1.0, max(0.0, math.fsum(map(math.fsum, clusters)) / trials))
    if count == 1:
        return wilson_interval(mean, 1)
    spread = mean * (1 - mean)
    variance = _variance(clusters, mean, spread / most)
    effective = spread / variance if variance else float(count)
    return wilson_interval(mean, effective * (_Z_95 / _t_95(count - 1)) ** 2)


def _variance(clusters: Sequence[Sequence[float]], mean: float, least: float) -> float:
    """The variance of a mean of values in [0, 1], at least `least`; 0 where nothing is known of it.

    Where few clusters have any success, or any failure, there is little to estimate it from, and
    an estimate is too small about as often as the mean is. It is drawn towards that of clusters
    which are alike within, mean (1 - mean) / clusters, as which those count that have none at all:
    by 2 / (2 + n²) with n such clusters, which is 0.02 for 10.
    """
    count, spread = len(clusters), mean * (1 - mean)
    found = max(least, _ratio_variance(clusters, mean))
    # What rounding leaves of a variance is none.
    if found <= 1e-12 * spread:
        return 0.0
    some = sum(max(cluster) > 0 for cluster in clusters)
    others = sum(min(cluster) < 1 for cluster in clusters)
    weight = _PRIOR / (_PRIOR + min(some, others) ** 2)
    return (1 - weight) * found + weight * spread / count


def paired_interval(
    differences: Sequence[float], pseudo: float = 0.0
) -> tuple[float, float] | None:
    """The 95 % interval of the mean of paired differences; None for fewer than two.

    Student's t; None, too, where a difference is not finite. Of `pseudo`, a quarter each is a
    difference of +1 and of -1, and half is one of 0: A. Agresti and Y. Min, Statistics in Medicine
    24 (2005), add two such pairs to those of single trials, where all equal differences would
    leave an interval without width.
    """
    count = len(differences)
    if count < 2 or not all(map(math.isfinite, differences)):
        return None
    if (unit := unit_of(_largest(differences))) > 1:
        found = paired_interval([value / unit for value in differences], pseudo)
        return found and (found[0] * unit, found[1] * unit)
    total = count + pseudo
    mean = math.fsum(differences) / total
    squares = math.fsum(value * value for value in differences) + pseudo / 2
    # The sample variance of the differences alone, when nothing is added.
    variance = max(0.0, squares / total - mean * mean) / (total - (0 if pseudo else 1))
    half = _t_95(count - 1) * math.sqrt(variance)
    return mean - half, mean + half


def _ratio_variance(clusters: Sequence[Sequence[float]], mean: float) -> float:
    """The variance of sum / size over clusters that are drawn independently."""
    count, trials = len(clusters), sum(map(len, clusters))
    residuals = (math.fsum(cluster) - mean * len(cluster) for cluster in clusters)
    return count / (count - 1) * math.fsum(r * r for r in residuals) / trials**2


def _largest(values: Collection[float]) -> float:
    return max(map(abs, values), default=0.0)


def _t_95(freedom: float) -> float:
    """Student's t, two-sided 95 %: to 3 digits from 1 degree of freedom.

    Above 9 by the expansion in Abramowitz and Stegun, 26.7.5; between two of the table by the
    reciprocals.
    """
    if freedom < len(_T_95):
        whole = int(freedom)
        share = (1 - whole / freedom) * (whole + 1)
        return _T_95[whole - 1] + share * (_T_95[whole] - _T_95[whole - 1])
    if freedom == len(_T_95):
        return _T_95[-1]
    z, v = _Z_95, freedom
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


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
    NaN where a difference is not finite.
    """
    if not all(map(math.isfinite, differences)):
        return math.nan
    unit = unit_of(_largest(differences))
    values = [value / unit for value in differences if value]
    observed = abs(math.fsum(values)) - 1e-12
    if len(values) <= _EXACT:
        signs = list(product((1, -1), repeat=len(values)))
        return sum(_is_extreme(values, each, observed) for each in signs) / len(signs)
    rng = random.Random(0)
    drawn = (rng.choices((1, -1), k=len(values)) for _ in range(_DRAWS))
    return (1 + sum(_is_extreme(values, each, observed) for each in drawn)) / (1 + _DRAWS)


def _is_extreme(values: Sequence[float], signs: Sequence[int], observed: float) -> bool:
    return abs(sum(v * s for v, s in zip(values, signs, strict=True))) >= observed
