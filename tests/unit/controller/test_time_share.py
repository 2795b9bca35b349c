"""How a shared trainer's time is divided, by a clock of the test's own."""

from __future__ import annotations

import pytest
from podium_controller.pools.time_share import TimeShare


def test_time_is_divided_among_the_jobs_whose_calls_are_in_flight() -> None:
    now = [0.0]
    share = TimeShare(lambda: now[0])
    now[0] += 5
    with share.call("a"):
        now[0] += 2
        with share.call("b"), share.call("b"):
            now[0] += 6
            # In the middle of it, and the rest later.
            assert (share.take("a"), share.take("b")) == (2 + 3, 3)
            now[0] += 2
        now[0] += 1
    now[0] += 7
    assert (share.take("a"), share.take("b"), share.take("c")) == (1 + 1, 1, 0)
    assert share.take("a") == 0


def test_a_call_that_fails_ends_too() -> None:
    now = [0.0]
    share = TimeShare(lambda: now[0])

    def lose() -> None:
        with share.call("a"):
            now[0] += 3
            raise ValueError("lost")

    with pytest.raises(ValueError, match="lost"):
        lose()
    now[0] += 4
    assert share.take("a") == 3
