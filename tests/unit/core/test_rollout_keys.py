"""Keys of rollouts: what they prove, and what they do not tell."""

from __future__ import annotations

import pytest
from podium.core.rollout_keys import PREFIX, new_key, signed, verified


def test_a_signed_key_is_taken_by_whoever_has_the_token() -> None:
    key = new_key()
    presented = signed(key, "the-token")
    assert presented.startswith(PREFIX)
    assert "the-token" not in presented
    assert verified(presented, "the-token") == key


@pytest.mark.parametrize(
    "presented",
    [
        "podium-rollout-one",
        "podium-rollout-one.",
        "podium-rollout-one." + "0" * 64,
        signed("podium-rollout-one", "another-token"),
        signed("podium-rollout-two", "the-token").replace("two", "one"),
        "podium-rollout-one.é",
    ],
)
def test_a_key_that_the_token_did_not_sign_is_nobodys(presented: str) -> None:
    assert verified(presented, "the-token") is None


def test_without_a_token_none_is_asked_for() -> None:
    assert signed("podium-rollout-one", "") == "podium-rollout-one"
    assert verified("podium-rollout-one", "") == "podium-rollout-one"
    assert verified(signed("podium-rollout-one", "some"), "") == "podium-rollout-one"
