"""The tutorial's weighted criteria: pure functions of plain values, each in [0, 1].

Source: rows S21 to S27 of the tutorial that Podium is held to; its numbers are
tests/golden/judge_criteria.json. Where the tutorial divides by zero or calls
what it never defines, the docstring says what is done here.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from podium.core.answers import token_f1

_SLOW_AFTER_SECONDS = 30.0
_SLOWNESS_UNIT_SECONDS = 60.0


@dataclass(frozen=True)
class CriteriaScores:
    """The four criteria of one attempt, each in [0, 1]."""

    accuracy: float
    efficiency: float
    completeness: float
    satisfaction: float

    def total(self, weights: CriteriaScores) -> float:
        """Weighted sum, clamped to [0, 1] (S21). `weights` sum to 1."""
        return clamp(
            self.accuracy * weights.accuracy
            + self.efficiency * weights.efficiency
            + self.completeness * weights.completeness
            + self.satisfaction * weights.satisfaction
        )


def clamp(value: float) -> float:
    """`value`, held to [0, 1]."""
    return min(1.0, max(0.0, value))


def similarity(result: object, expected: object) -> float:
    """How alike two results are (S22).

    Texts by difflib's ratio, letter case aside. Mappings by the mean of the keys'
    Jaccard index and the share of common keys with equal values. All else: equal
    or not. Nothing to compare with, or nothing to compare, is 0.

    The tutorial divides by zero for empty mappings: two empty ones are equal (1),
    and mappings without a common key have no matching value (0).
    """
    if result is None or expected is None:
        return 0.0
    if isinstance(result, str) and isinstance(expected, str):
        return SequenceMatcher(None, result.lower(), expected.lower()).ratio()
    if isinstance(result, Mapping) and isinstance(expected, Mapping):
        return _mapping_similarity(result, expected)
    return 1.0 if result == expected else 0.0


def _mapping_similarity(result: Mapping[str, object], expected: Mapping[str, object]) -> float:
    union = result.keys() | expected.keys()
    if not union:
        return 1.0
    common = result.keys() & expected.keys()
    keys = len(common) / len(union)
    values = sum(result[key] == expected[key] for key in common) / len(common) if common else 0.0
    return (keys + values) / 2


def general_accuracy(result: object, expected: object, done: bool) -> float:
    """Likeness to the expected result; without one, 0.7 when done and 0.3 when not (S23)."""
    if expected is None:
        return 0.7 if done else 0.3
    return similarity(result, expected)


def email_accuracy(result: object, keywords: Collection[str], sender: str) -> float:
    """Whether the right email was selected (S23).

    `result` is the final state; its `selected_email` holds subject, body and
    sender. 0 without a state, 0.2 without a selection, else
    ``min(1, 0.7 * share of keywords found + 0.2 * sender found + 0.1)``, letter
    case aside. An expectation that is not stated (no keyword, no sender) is met.
    """
    if not isinstance(result, Mapping):
        return 0.0
    email = result.get("selected_email")
    if not isinstance(email, Mapping) or not email:
        return 0.2
    text = " ".join(str(email.get(part, "")) for part in ("subject", "body", "sender")).lower()
    found = sum(word.lower() in text for word in keywords)
    share = found / len(keywords) if keywords else 1.0
    from_sender = sender.lower() in str(email.get("sender", "")).lower()
    return min(1.0, 0.7 * share + 0.2 * from_sender + 0.1)


def code_accuracy(code: str, tests_passed: int, tests_total: int, expected: str | None) -> float:
    """Share of tests that the code passed (S27; named but undefined in the tutorial).

    The environment runs the tests, in its sandbox; nothing is run here. Without
    tests, likeness to the expected code. Code that is not Python, or none, is 0.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0.0
    if not tree.body:
        return 0.0
    if tests_total > 0:
        return clamp(tests_passed / tests_total)
    return similarity(code, expected)


def answer_accuracy(answer: str, accepted: Sequence[str]) -> float:
    """Best token F1 against the accepted answers (S27; undefined in the tutorial).

    Case, punctuation and articles aside, as SQuAD's evaluation does (Rajpurkar et
    al. 2016); an exact match is 1. No answer is 0.
    """
    return token_f1(answer, accepted)


def efficiency(actions: int, optimal: int) -> float:
    """1 up to `optimal` actions, then half a point less for each `optimal` more (S24).

    For `optimal` 0 the tutorial divides by zero; its limit is taken: 1 without
    actions, 0 with any.
    """
    if actions <= optimal:
        return 1.0
    if optimal <= 0:
        return 0.0
    return max(0.0, 1.0 - 0.5 * (actions - optimal) / optimal)


def completeness(required: Collection[str], provided: Collection[str], done: bool) -> float:
    """Share of the required kinds of information that were given (S25).

    With none required: 1 when done, 0.5 when not.
    """
    kinds = set(required)
    if not kinds:
        return 1.0 if done else 0.5
    return len(kinds & set(provided)) / len(kinds)


def satisfaction(errors: int, seconds: float) -> float:
    """0.1 less an error, and 0.2 less a minute beyond the first 30 seconds (S26)."""
    slowness = max(0.0, (seconds - _SLOW_AFTER_SECONDS) / _SLOWNESS_UNIT_SECONDS)
    return max(0.0, 1.0 - 0.1 * errors - 0.2 * slowness)
