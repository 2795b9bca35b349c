from __future__ import annotations

import pytest
from podium.core.answers import contains_answer, exact_match, token_f1


@pytest.mark.parametrize(
    ("answer", "accepted", "exact", "f1"),
    [
        ("Paris", ["Paris"], True, 1.0),
        ("  the PARIS. ", ["Paris"], True, 1.0),
        ("Paris", ["London", "paris!"], True, 1.0),
        ("Eiffel Tower", ["Tower Eiffel"], False, 1.0),
        ("Eiffel Tower Paris", ["Eiffel Tower"], False, 0.8),
        ("tower tower", ["tower"], False, 2 / 3),
        ("Paris", ["London"], False, 0.0),
        ("Paris", [], False, 0.0),
        ("", ["Paris"], False, 0.0),
        ("the", ["a"], False, 0.0),
        ("Paris", ["the"], False, 0.0),
    ],
)
def test_answers_are_measured_as_in_squad(
    answer: str, accepted: list[str], exact: bool, f1: float
) -> None:
    assert exact_match(answer, accepted) is exact
    assert token_f1(answer, accepted) == pytest.approx(f1)


@pytest.mark.parametrize(
    ("answer", "accepted", "contained"),
    [
        ("It is the Eiffel Tower, in Paris.", ["eiffel tower"], True),
        ("It is 14.", ["4"], False),
        ("Tower Eiffel", ["Eiffel Tower"], False),
        ("Paris", ["London", "Paris"], True),
        ("", ["Paris"], False),
        ("the", ["a"], False),
    ],
)
def test_an_answer_is_found_in_a_sentence(
    answer: str, accepted: list[str], contained: bool
) -> None:
    assert contains_answer(answer, accepted) is contained
