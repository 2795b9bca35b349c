"""Means and intervals of numbers at the end of a double, and of none."""

from __future__ import annotations

import math

import pytest
from podium.core.means import mean_of, total_of
from podium.core.statistics import clustered_mean_interval, paired_interval, sign_flip_p_value

INF = math.inf
HUGE = 1.7e308


@pytest.mark.parametrize(
    ("values", "total", "mean"),
    [
        ([0.1] * 10, 1.0, 0.1),
        ([HUGE, HUGE], INF, HUGE),
        ([-HUGE, -HUGE, HUGE], -HUGE, -HUGE / 3),
        ([INF, HUGE, HUGE], INF, INF),
        ([INF, -INF], math.nan, math.nan),
        ([math.nan, HUGE, HUGE], math.nan, math.nan),
    ],
)
def test_no_number_ends_a_mean(values: list[float], total: float, mean: float) -> None:
    assert total_of(iter(values)) == pytest.approx(total, nan_ok=True)
    assert mean_of(iter(values)) == pytest.approx(mean, nan_ok=True)


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
