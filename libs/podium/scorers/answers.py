"""What a scorer's function returned, as the answer that a job's judge service takes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any


class ScorerFailedError(Exception):
    """A group that cannot be scored; the text says why, for whoever wrote the function."""


def answer_of(returned: Any, count: int) -> dict[str, Any]:
    """`scores` and `reasons` for `count` attempts, JSON values only.

    A function returns one item an attempt: a number (of numpy and torch too), None for an
    attempt without a score, or one of the two with a text for people, `(0.5, "why")`.

    Raises:
        ScorerFailedError: anything else.
    """
    if isinstance(returned, str | bytes | dict) or not isinstance(returned, Iterable):
        kind = type(returned).__name__
        raise ScorerFailedError(f"it returned {kind}; allowed is a list, one score an attempt")
    items = list(returned)
    if len(items) != count:
        raise ScorerFailedError(f"it returned {len(items)} scores for {count} attempts")
    rows = [_row(item, number) for number, item in enumerate(items)]
    return {"scores": [score for score, _ in rows], "reasons": [reason for _, reason in rows]}


def _row(item: Any, number: int) -> tuple[float | None, str | None]:
    if not isinstance(item, tuple):
        return _score(item, number), None
    if len(item) != 2 or not isinstance(item[1], str | None):
        raise ScorerFailedError(
            f"what it returned for attempt {number} is a tuple, but not of a score and a text"
        )
    return _score(item[0], number), item[1]


def _score(value: Any, number: int) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        kind = type(value).__name__
        raise ScorerFailedError(f"its score of attempt {number} is a {kind}; allowed are numbers")
    try:
        score = float(value)
    except Exception as error:
        raise ScorerFailedError(
            f"its score of attempt {number} is no number: {type(error).__name__}"
        ) from error
    if not math.isfinite(score):
        raise ScorerFailedError(
            f"its score of attempt {number} is {score}; allowed are finite ones"
        )
    return score
