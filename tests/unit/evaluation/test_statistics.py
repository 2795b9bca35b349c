"""Intervals and tests, against published numbers and by counting."""

from __future__ import annotations

import math
import random
from itertools import combinations, product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from podium.core.statistics import pass_at_k, sign_flip_p_value, wilson_interval


@pytest.mark.parametrize(
    ("mean", "n", "low", "high"),
    [
        # Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
        (81 / 263, 263, 0.2553, 0.3662),
        (15 / 148, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1 / 29, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_intervals_equal_published_ones(
    mean: float, n: int, low: float, high: float
) -> None:
    assert wilson_interval(mean, n) == pytest.approx((low, high), abs=5e-5)


@example(trials=(9, 0))
@example(trials=(10, 10))
@given(trials=st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_wilson_intervals_hold_the_mean_inside_zero_and_one(trials: tuple[int, int]) -> None:
    n, successes = trials
    mean = successes / n
    low, high = wilson_interval(mean, n)
    assert 0 <= low <= mean <= high <= 1


def test_no_trials_tell_nothing() -> None:
    assert wilson_interval(math.nan, 0) == (0, 1)


@given(n=st.integers(1, 9), data=st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_success(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    draws = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5)])
def test_pass_at_k_of_nothing_is_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="k must be from 1"):
        pass_at_k(n, c, k)


def test_few_differences_are_counted_exactly() -> None:
    # R. A. Fisher, The Design of Experiments (1935), chapter III: Darwin's maize, in eighths of
    # an inch; without the smallest pair, which is over the bound of what is counted here.
    darwin = [49, -67, 8, 16, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
    total = sum(darwin)
    signs = product((1, -1), repeat=len(darwin))
    extreme = sum(
        abs(sum(v * s for v, s in zip(darwin, each, strict=True))) >= total for each in signs
    )
    assert sign_flip_p_value(darwin) == extreme / 2 ** len(darwin)
    # With all fifteen pairs Fisher counted 1726 of 32768.
    assert sign_flip_p_value([*darwin, 6]) == pytest.approx(1726 / 32768, abs=0.005)


def test_no_difference_is_no_evidence() -> None:
    assert sign_flip_p_value([]) == 1
    assert sign_flip_p_value([0.0] * 30) == 1
    assert sign_flip_p_value([1.0, -1.0]) == 1


def test_the_level_is_held_under_the_null_hypothesis() -> None:
    rng = random.Random(3)
    values = [
        sign_flip_p_value([rng.choice((-1.0, 0.0, 1.0)) for _ in range(12)]) for _ in range(150)
    ]
    assert sum(value <= 0.1 for value in values) / len(values) <= 0.16
    assert all(0 < value <= 1 for value in values)
    assert math.isclose(sign_flip_p_value([1.0] * 6), 2 / 64)
