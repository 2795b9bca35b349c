from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from podium_judge.domain import criteria
from podium_judge.domain.criteria import CriteriaScores
from support.golden import golden

GOLDEN = golden("judge_criteria.json")
WEIGHTS = CriteriaScores(0.4, 0.3, 0.2, 0.1)
KEYWORDS = ("budget", "quarterly", "review")
EMAIL = {"subject": "Quarterly budget", "body": "See the file.", "sender": "anna@example.com"}


def test_s21_the_tutorials_example() -> None:
    accuracy = criteria.email_accuracy({"selected_email": EMAIL}, KEYWORDS, "anna")
    total = CriteriaScores(accuracy, 1.0, 1.0, 1.0).total(WEIGHTS)
    assert accuracy == pytest.approx(GOLDEN["ruler_example"]["accuracy"])
    assert total == pytest.approx(GOLDEN["ruler_example"]["total"])
    assert f"{total:.3f}" == GOLDEN["ruler_example"]["printed"]


@pytest.mark.parametrize(("case", "value"), GOLDEN["efficiency"].items())
def test_s24_efficiency(case: str, value: float) -> None:
    actions, optimal = map(int, case.split("/"))
    assert criteria.efficiency(actions, optimal) == pytest.approx(value)


def test_s24_efficiency_when_nothing_is_needed() -> None:
    assert criteria.efficiency(0, 0) == 1.0
    assert criteria.efficiency(1, 0) == 0.0


def test_s24_efficiency_is_gone_at_thrice_the_optimum() -> None:
    assert criteria.efficiency(15, 5) == 0.0
    assert criteria.efficiency(14, 5) == pytest.approx(0.1)


@pytest.mark.parametrize(("case", "value"), GOLDEN["satisfaction"].items())
def test_s26_satisfaction(case: str, value: float) -> None:
    errors, seconds = case.removeprefix("err").split(",t")
    assert criteria.satisfaction(int(errors), float(seconds)) == pytest.approx(value)


def test_s26_satisfaction_after_five_and_a_half_minutes() -> None:
    assert criteria.satisfaction(0, 330) == pytest.approx(0.0)


def test_s25_completeness() -> None:
    golden = GOLDEN["completeness"]
    assert criteria.completeness([], [], done=True) == golden["none,done"]
    assert criteria.completeness([], ["x"], done=False) == golden["none,!done"]
    found = criteria.completeness(["date", "place", "price"], ["price", "date", "x"], done=False)
    assert found == pytest.approx(golden["2of3"])
    assert criteria.completeness(["date", "date"], ["date"], done=False) == 1.0


def test_s22_similarity_of_texts() -> None:
    golden = GOLDEN["string_sim"]
    assert criteria.similarity("hello", "hallo") == pytest.approx(golden["hello/hallo"])
    assert criteria.similarity("Same", "sAME") == golden["same_case"]
    assert criteria.similarity("", "") == golden["empty"]


def test_s22_similarity_of_mappings() -> None:
    golden = GOLDEN["dict_sim"]
    assert criteria.similarity({"a": 1, "b": 2}, {"a": 1, "b": 2}) == golden["same"]
    assert criteria.similarity({"a": 1, "b": 2}, {"a": 1, "b": 3}) == golden["half"]
    assert criteria.similarity({"a": 1}, {"b": 1}) == golden["disjoint"]


def test_s22_similarity_settles_what_the_tutorial_divides_by_zero() -> None:
    assert criteria.similarity({}, {}) == 1.0
    assert criteria.similarity({}, {"a": 1}) == 0.0
    assert criteria.similarity({"a": 1}, {}) == 0.0


def test_s22_similarity_of_other_things() -> None:
    assert criteria.similarity(None, "x") == 0.0
    assert criteria.similarity("x", None) == 0.0
    assert criteria.similarity(3.0, 3) == 1.0
    assert criteria.similarity([1, 2], [2, 1]) == 0.0
    assert criteria.similarity("3", 3) == 0.0


@pytest.mark.parametrize(("done", "value"), [(True, 0.7), (False, 0.3)])
def test_s23_general_accuracy_without_an_expected_result(done: bool, value: float) -> None:
    assert criteria.general_accuracy("anything", None, done) == value
    assert criteria.general_accuracy("hello", "hallo", done) == pytest.approx(0.8)


def test_s23_email_accuracy_steps() -> None:
    assert criteria.email_accuracy("no state", KEYWORDS, "anna") == 0.0
    assert criteria.email_accuracy({}, KEYWORDS, "anna") == 0.2
    assert criteria.email_accuracy({"selected_email": None}, KEYWORDS, "anna") == 0.2
    wrong = {"selected_email": {"subject": "Lunch", "sender": "bob@example.com"}}
    assert criteria.email_accuracy(wrong, KEYWORDS, "anna") == pytest.approx(0.1)
    assert criteria.email_accuracy({"selected_email": EMAIL}, [], "") == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("code", "passed", "total", "expected", "value"),
    [
        ("def f(): return 1", 3, 4, None, 0.75),
        ("def f(): return 1", 9, 4, None, 1.0),
        ("def f(: return 1", 4, 4, None, 0.0),
        ("", 4, 4, None, 0.0),
        ("# only words", 4, 4, None, 0.0),
        ("x = 1", 0, 0, "x = 1", 1.0),
        ("x = 1", 0, 0, None, 0.0),
        ("x = 1\0", 1, 1, None, 0.0),
        ("(" * 100_000, 1, 1, None, 0.0),
    ],
)
def test_s27_code_accuracy(
    code: str, passed: int, total: int, expected: str | None, value: float
) -> None:
    assert criteria.code_accuracy(code, passed, total, expected) == value


@pytest.mark.parametrize(
    ("answer", "accepted", "value"),
    [
        ("The Eiffel Tower!", ["eiffel tower"], 1.0),
        ("It is Paris", ["Paris", "the city of Paris"], 0.5),
        ("Rome", ["Paris"], 0.0),
        ("", ["Paris"], 0.0),
        ("the", [""], 0.0),
        ("Paris", [], 0.0),
        ("paris paris", ["Paris"], 2 / 3),
    ],
)
def test_s27_answer_accuracy(answer: str, accepted: list[str], value: float) -> None:
    assert criteria.answer_accuracy(answer, accepted) == pytest.approx(value)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(json_values, json_values)
def test_s22_similarity_is_symmetric_in_bounds_and_1_for_the_same(a: object, b: object) -> None:
    assert 0.0 <= criteria.similarity(a, b) <= 1.0
    if a is not None:
        assert criteria.similarity(a, a) == 1.0


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 100), st.floats(0, 1e9))
def test_s21_every_criterion_stays_in_bounds(
    actions: int, optimal: int, errors: int, seconds: float
) -> None:
    parts = CriteriaScores(
        1.0, criteria.efficiency(actions, optimal), 0.0, criteria.satisfaction(errors, seconds)
    )
    assert 0.0 <= parts.efficiency <= 1.0
    assert 0.0 <= parts.satisfaction <= 1.0
    assert 0.0 <= parts.total(WEIGHTS) <= 1.0
