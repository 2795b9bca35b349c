"""Means and intervals of numbers at the end of a double, and of none."""

from __future__ import annotations

import math
import statistics
import sys

import pytest
from podium.core.means import mean_of, total_of
from podium.core.statistics import clustered_mean_interval, paired_interval, sign_flip_p_value

INF = math.inf
HUGE = 1.7e308
MOST = sys.float_info.max


@pytest.mark.parametrize(
    ("values", "total", "mean"),
    [
        ([0.1] * 10, 1.0, 0.1),
        ([HUGE, HUGE], INF, HUGE),
        ([-HUGE, -HUGE, HUGE], -HUGE, -HUGE / 3),
        ([INF, HUGE, HUGE], INF, INF),
        ([INF, -INF], math.nan, math.nan),
        ([math.nan, HUGE, HUGE], math.nan, math.nan),
        ([HUGE, HUGE, -INF], -INF, -INF),
        ([HUGE, HUGE, INF, -INF], math.nan, math.nan),
        ([MOST] * 3, INF, MOST),
        ([-MOST] * 3, -INF, -MOST),
        ([MOST] * 1000, INF, MOST),
        ([MOST, MOST, -MOST], MOST, MOST / 3),
        ([MOST, MOST, -MOST, -MOST, 1e-200], 1e-200, 2e-201),
    ],
)
def test_no_number_ends_a_mean(values: list[float], total: float, mean: float) -> None:
    assert total_of(iter(values)) == pytest.approx(total, abs=0, nan_ok=True)
    assert mean_of(iter(values)) == pytest.approx(mean, abs=0, nan_ok=True)


@pytest.mark.parametrize("values", [[0.1] * 10, [1, 2, 4], [1e300, -1e300, 1e-300], [5e-324, 0.0]])
def test_the_mean_of_ordinary_numbers_is_that_of_the_statistics(values: list[float]) -> None:
    assert mean_of(values) == statistics.fmean(values)


def test_intervals_of_huge_values_are_those_of_small_ones() -> None:
    small = [[1.0, 2.0], [3.0, 5.0], [4.0, 4.0], [0.5, 7.0]]
    scale = 2.0**1000
    low, high = clustered_mean_interval(small) or (0, 0)
    huge = clustered_mean_interval([[value * scale for value in each] for each in small])
    assert huge == pytest.approx((low * scale, high * scale))
    differences = [1.0, -2.0, 3.0, 5.0]
    low, high = paired_interval(differences) or (0, 0)
    assert paired_interval([value * scale for value in differences]) == pytest.approx(
        (low * scale, high * scale)
    )
    assert sign_flip_p_value([HUGE, HUGE, HUGE]) == sign_flip_p_value([1.0, 1.0, 1.0])


def test_what_is_not_finite_has_no_interval() -> None:
    assert clustered_mean_interval([[INF, 1.0], [-INF, 2.0]]) is None
    assert paired_interval([INF, -INF, 1.0]) is None
    assert math.isnan(sign_flip_p_value([INF, -INF]))
