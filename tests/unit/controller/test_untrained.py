"""What is told of a step that trained nothing."""

from __future__ import annotations

import pytest
from podium_controller.training.untrained import untrained


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        (
            {"groups_skipped/zero_variance": 6.0, "train/tokens_trained": 0.0},
            ("6 of 6 groups had no variance", "raise rollout.group_size or", "NOTHING_TRAINED"),
        ),
        (
            {"groups_skipped/zero_variance": 4.0, "groups_skipped/no_trainable_trajectory": 2.0},
            ("4 of 6 groups had no variance", "2 of 6 groups had no attempt", "max_row_tokens"),
        ),
        ({"groups_skipped/all_failed": 6.0}, ("6 of 6 groups failed in every attempt",)),
        ({"groups_skipped/judge_failed": 6.0}, ("6 of 6 groups were skipped (judge_failed)",)),
        ({"train/tokens_trained": 0.0}, ("no token of any attempt could be trained",)),
    ],
)
def test_it_says_why_and_what_to_change(metrics: dict[str, float], words: tuple[str, ...]) -> None:
    text = untrained(3, metrics, 6)
    assert text.startswith("step 3 trained nothing: ")
    for each in words:
        assert each in text


@pytest.mark.parametrize(
    "metrics",
    [
        {},
        {"train/tokens_trained": 90.0},
        {"groups_skipped/zero_variance": 5.0, "train/tokens_trained": 90.0},
    ],
)
def test_a_step_that_trained_something_is_not_told_of(metrics: dict[str, float]) -> None:
    assert untrained(3, metrics, 6) == ""
