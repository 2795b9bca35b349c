"""Waits grow, differ, end at the longest, and heed what a server asks for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from podium.core.backoff import Backoff, retry_after


def test_waits_double_up_to_the_longest_each_in_its_upper_half() -> None:
    for _ in range(50):
        backoff = Backoff(0.1, 0.5)
        for ceiling in (0.1, 0.2, 0.4, 0.5, 0.5):
            assert ceiling / 2 <= backoff.next() <= ceiling


def test_no_two_wait_alike() -> None:
    assert len({Backoff(1.0, 8.0).next() for _ in range(20)}) > 1


def test_the_first_is_never_longer_than_the_longest() -> None:
    assert Backoff(60.0, 0.25).next() <= 0.25


def test_after_it_worked_it_begins_anew() -> None:
    backoff = Backoff(0.1, 100.0)
    for _ in range(8):
        backoff.next()
    backoff.reset()
    assert backoff.next() <= 0.1


@pytest.mark.parametrize(("value", "seconds"), [("0", 0.0), ("1.5", 1.5), (" 120 ", 120.0)])
def test_seconds(value: str, seconds: float) -> None:
    assert retry_after(value) == seconds


def test_a_date() -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    seconds = retry_after(format_datetime(later, usegmt=True))
    assert seconds is not None
    assert 0 < seconds <= 3600
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0


@pytest.mark.parametrize("value", ["", "soon", "-5", "nan", "inf", "1e999", "Wed, 99 Oct"])
def test_what_says_nothing(value: str) -> None:
    assert retry_after(value) is None
