from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from podium_judge.domain.scores import Score
from podium_judge.domain.verdict import VerdictError, parse

LABELS = ("2", "1")


def entry(label: Any, score: Any, **more: Any) -> dict[str, Any]:
    return {"attempt_id": label, "explanation": f"about {label}", "score": score, **more}


def text(*entries: Any) -> str:
    return json.dumps({"scores": list(entries)})


GOOD = [Score(0.9, "about 2"), Score(0.1, "about 1")]


def test_scores_are_joined_by_id_in_any_order() -> None:
    assert parse(text(entry("1", 0.1), entry("2", 0.9)), LABELS) == GOOD
    assert parse(text(entry("2", 0.9), entry("1", 0.1)), LABELS) == GOOD


def test_harmless_deviations_are_taken() -> None:
    assert parse(text(entry(1, 0.1), entry(2, 0.9)), LABELS) == GOOD
    assert parse(f"```json\n{text(entry('1', 0.1), entry('2', 0.9))}\n```", LABELS) == GOOD
    assert parse(text(entry("1", 0, confidence=1), entry("2", 1)), LABELS)[0].value == 1.0
    assert parse(text({"attempt_id": "1", "score": 0.1}, entry("2", 0.9)), LABELS)[1].value == 0.1


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ("", "not one JSON object"),
        ("I think attempt 1 is best.", "not one JSON object"),
        (text(entry("1", 0.1), entry("2", 0.9))[:-5], "not one JSON object"),
        ("[" * 100_000, "not one JSON object"),
        ("[1]", "no list"),
        ('{"scores": {"1": 0.5}}', "no list"),
        (text("1", "2"), "not an object"),
        (text(entry("1", 0.1)), "without a score: 2"),
        (text(), "without a score: 1, 2"),
        (text(entry("1", 0.1), entry("1", 0.2), entry("2", 0.9)), "scored twice"),
        (text(entry("1", 0.1), entry("2", 0.9), entry("3", 1)), "no attempt '3'"),
        (text(entry(True, 0.1), entry("2", 0.9)), "no attempt_id"),
        (text({"score": 0.1}, entry("2", 0.9)), "no attempt_id"),
        (text(entry("1", 15), entry("2", 0.9)), "is 15"),
        (text(entry("1", -0.1), entry("2", 0.9)), "is -0.1"),
        (text(entry("1", float("nan")), entry("2", 0.9)), "NaN"),
        (text(entry("1", float("inf")), entry("2", 0.9)), "Infinity"),
        ('{"scores": [{"attempt_id": "1", "score": 1e999}]}', "is inf"),
        (text(entry("1", "half"), entry("2", 0.9)), "not a number"),
        (text(entry("1", None), entry("2", 0.9)), "not a number"),
        (text(entry("1", True), entry("2", 0.9)), "not a number"),
        ('{"scores": [{"attempt_id": "1", "score": 0, "score": 1}]}', "same key twice"),
    ],
)
def test_a_useless_answer_is_refused_with_its_fault(answer: str, complaint: str) -> None:
    with pytest.raises(VerdictError, match=complaint):
        parse(answer, LABELS)


def test_a_long_explanation_is_cut() -> None:
    long = {"attempt_id": "1", "explanation": "x" * 10_000, "score": 0.5}
    assert len(parse(text(long), ("1",))[0].explanation) == 2000


@given(st.text() | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_no_text_breaks_the_parser(answer: str) -> None:
    with pytest.raises(VerdictError):
        parse(answer, LABELS)
