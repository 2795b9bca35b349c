from __future__ import annotations

import pytest
from podium.core.answers import exact_match, token_f1


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
