"""Names made of text."""

from __future__ import annotations

import pytest
from podium.core.names import slug


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("email_search", "email-search"),
        ("  Agent 7!", "agent-7"),
        ("my.org/Env--v1", "my-org-env-v1"),
        ("___", ""),
        ("", ""),
    ],
)
def test_letters_and_digits_stay_and_a_hyphen_stands_for_the_rest(text: str, name: str) -> None:
    assert slug(text) == name
