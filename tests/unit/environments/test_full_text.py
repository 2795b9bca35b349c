from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from podium.environments.full_text import FullText

INDEX = FullText(
    [
        ("a", "roof repair"),
        ("b", "roof repair on Monday"),
        ("a", "roof roof and a very long text about other things"),
        ("a", "party on the roof, party on Monday"),
    ]
)


def test_all_words_or_any_of_them() -> None:
    assert INDEX.with_all("a", "ROOF") == [0, 2, 3]
    assert INDEX.with_all("a", "roof, monday") == [3]
    assert INDEX.with_all("a", "roof zebra") == []
    assert INDEX.best("a", "repair party zebra", 9) == [3, 0]
    assert INDEX.best("a", "repair party zebra", 1) == [3]
    assert INDEX.best("a", "zebra", 9) == []


def test_a_collection_shows_only_its_own_and_its_name_is_not_searched() -> None:
    assert INDEX.with_all("b", "roof") == [1]
    assert INDEX.with_all("c", "roof") == INDEX.with_all("' or 1=1 --", "roof") == []
    assert INDEX.best("b", "b", 9) == []


@pytest.mark.parametrize(
    "text", ["", " ", '"', "*", "roof* OR", "NEAR(roof repair)", "\x00", "\ud800"]
)
def test_hostile_words_are_only_words(text: str) -> None:
    INDEX.with_all("a", text)
    assert 0 not in INDEX.with_all("a", f"{text} nowhere")


@given(st.text(max_size=60))
def test_no_text_at_all_raises(words: str) -> None:
    assert set(INDEX.with_all("a", words)) <= set(INDEX.best("a", words, 9)) <= {0, 2, 3}


def test_of_a_long_search_the_first_words_count() -> None:
    """A hundred thousand words took SQLite most of a minute."""
    assert INDEX.best("a", "roof " * 100_000 + "party", 9)[0] == 3
    many = " ".join(f"w{n}" for n in range(100_000))
    assert INDEX.best("a", f"{many} party", 9) == []
