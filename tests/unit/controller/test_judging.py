"""What the controller makes of groups that nobody could judge."""

from __future__ import annotations

import pytest
from podium.core.skip_reasons import (
    ALL_FAILED,
    JUDGE_BUDGET,
    JUDGE_FAILED,
    JUDGE_UNAVAILABLE,
)
from podium.types.v1 import trajectory_pb2
from podium_controller.training.judging import (
    failure_text,
    unjudgeable,
    unusable,
)


def group(skip_reason: str = "", explanation: str = "", failed: int = 0) -> trajectory_pb2.Group:
    """Three attempts, of which the first `failed` have raised."""
    made = trajectory_pb2.Group(skip_reason=skip_reason)
    for attempt in range(3):
        one = made.trajectories.add(explanation=explanation)
        if attempt < failed:
            one.stop_reason = trajectory_pb2.STOP_REASON_FAILED
            one.failure.type, one.failure.message = "KeyError", "the inbox is missing"
    return made


@pytest.mark.parametrize("reason", [JUDGE_BUDGET, JUDGE_UNAVAILABLE])
def test_a_step_without_a_single_score_is_not_asked_for_again(reason: str) -> None:
    told = group(reason)
    assert unjudgeable([group("zero_variance"), told, group(JUDGE_FAILED)]) is told
    assert unjudgeable([group(ALL_FAILED, failed=3), told]) is told


def test_a_step_with_one_score_goes_on_with_it() -> None:
    assert unjudgeable([group(JUDGE_UNAVAILABLE), group(), group(JUDGE_BUDGET)]) is None


def test_what_another_round_may_mend_ends_nothing() -> None:
    assert unjudgeable([group(JUDGE_FAILED), group(ALL_FAILED, failed=3)]) is None
    assert unjudgeable([group("zero_variance")]) is None


def test_the_judges_words_are_told_even_when_an_attempt_raised() -> None:
    unjudged = group(JUDGE_BUDGET, "not scored: it is spent", failed=1)
    assert unusable(unjudged) == JUDGE_BUDGET
    assert failure_text(unjudged) == "not scored: it is spent"
    assert failure_text(group(ALL_FAILED, failed=3)) == "KeyError: the inbox is missing"
