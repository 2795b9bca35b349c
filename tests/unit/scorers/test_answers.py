"""What a stranger's function may return, and what is said of anything else."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from podium.scorers.answers import ScorerFailedError, answer_of
from podium.scorers.worker import words_of


class Odd:
    def __float__(self) -> float:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("returned", "scores", "reasons"),
    [
        ([1, 0.5, None], [1.0, 0.5, None], [None] * 3),
        ([(1, "good"), 0, (None, "cannot say")], [1.0, 0.0, None], ["good", None, "cannot say"]),
        (np.array([1, 2, 3], dtype=np.float32), [1.0, 2.0, 3.0], [None] * 3),
        ((n for n in (1, 2, 3)), [1.0, 2.0, 3.0], [None] * 3),
    ],
)
def test_numbers_none_and_words_are_taken(returned: Any, scores: Any, reasons: Any) -> None:
    answer = answer_of(returned, 3)
    assert answer == {"scores": scores, "reasons": reasons}
    json.dumps(answer, allow_nan=False)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (None, "it returned NoneType; allowed is a list"),
        (0.5, "it returned float"),
        ("abc", "it returned str"),
        ({0: 1, 1: 2, 2: 3}, "it returned dict"),
        ([1, 2], "it returned 2 scores for 3 attempts"),
        ([1, True, 3], "its score of attempt 1 is a bool"),
        ([1, "2", 3], "its score of attempt 1 is a str"),
        ([1, [2], 3], "its score of attempt 1 is a list"),
        ([1, 2, float("nan")], "its score of attempt 2 is nan; allowed are finite ones"),
        ([1, 2, np.inf], "its score of attempt 2 is inf"),
        ([1, 2, 10**400], "its score of attempt 2 is no number: OverflowError"),
        ([1, Odd(), 3], "its score of attempt 1 is no number: RuntimeError"),
        ([1, np.array([1, 2]), 3], "its score of attempt 1 is no number: TypeError"),
        ([1, (2, 3), 3], "for attempt 1 is a tuple, but not of a score and a text"),
        ([1, (2, "a", "b"), 3], "for attempt 1 is a tuple"),
    ],
)
def test_anything_else_is_refused_with_what_came(returned: Any, words: str) -> None:
    with pytest.raises(ScorerFailedError) as caught:
        answer_of(returned, 3)
    assert words in str(caught.value)


def test_what_was_raised_is_one_clean_line_that_says_where() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    for error, words in (
        (ValueError("a\nb \ud800\0"), "ValueError: a b \ufffd\ufffd (test_answers.py, line "),
        (MuteError(), "MuteError (test_answers.py, line "),
        (ValueError("x" * 10_000), "ValueError: xxx"),
    ):
        try:
            raise error
        except Exception as caught:
            found = words_of(caught)
        assert found.startswith(words)
        assert len(found) <= 1000
