"""Page tokens go on where a page ended, for the same listing alone."""

from __future__ import annotations

import pytest
from podium.core.errors import InvalidArgumentError
from podium.core.page_tokens import decode_page_token, encode_page_token, page_of

ROWS = [*range(5)]
FORGED = ["2", "at-1", "é!", "=" * 100, "AAAA"]


def test_pages_of_a_list_have_every_row_once() -> None:
    first, token = page_of(ROWS, 2, "", ["digits"])
    second, more = page_of(ROWS, 2, token, ["digits"])
    third, end = page_of(ROWS, 2, more, ["digits"])
    assert [*first, *second, *third] == ROWS
    assert end == ""
    assert page_of(ROWS, 5, "", ["digits"]) == (ROWS, "")


def test_a_list_that_has_become_shorter_ends() -> None:
    _, token = page_of(ROWS, 4, "", [])
    assert page_of(ROWS[:2], 4, token, []) == ([], "")


@pytest.mark.parametrize("token", [*FORGED, encode_page_token(["4"], ["digits"])])
def test_a_strange_token_is_refused_by_field(token: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        page_of(ROWS, 2, token, ["digits"])
    assert [violation.field for violation in caught.value.violations] == ["page_token"]


def test_a_token_is_of_its_own_listing() -> None:
    _, token = page_of(ROWS, 2, "", ["digits", {"of": 10, "from": 0}])
    assert page_of(ROWS, 2, token, ["digits", {"from": 0, "of": 10}])[0] == [2, 3]
    with pytest.raises(InvalidArgumentError):
        page_of(ROWS, 2, token, ["digits", {"from": 1, "of": 10}])


def test_a_position_before_the_start_is_the_start() -> None:
    assert page_of(ROWS, 2, encode_page_token([-9], []), [])[0] == [0, 1]


def test_a_cursor_may_be_of_several_parts() -> None:
    token = encode_page_token([3, "x"], [])
    assert decode_page_token(token, [], [int, str]) == [3, "x"]
    assert decode_page_token("", [], [int, str]) is None
