"""Rows S5 to S10 of the tutorial, held by its own numbers."""

from __future__ import annotations

import pytest
from podium.environments.email_search import tutorial
from support.golden import golden

GOLDEN = golden("tutorial_email.json")
NUMBERS = GOLDEN["email_search"]

ONCE = {"sender": "ben@x", "subject": "Lunch", "body": "After the REVIEW.", "date": "2026-02-01"}
FOUR_TIMES = {
    "sender": "budget-team@x",
    "subject": "Budget review",
    "body": "The budget is ready.",
    "date": "2026-01-01",
}
NEVER = {"sender": "carla@x", "subject": "Hello", "body": "Nothing new.", "date": "2026-03-01"}
INBOX = [ONCE, NEVER, FOUR_TIMES]
QUERY = "Budget review"


def test_s5_the_first_state_has_exactly_the_tutorials_keys() -> None:
    assert tutorial.initial_state(QUERY) == {
        "query": QUERY,
        "available_actions": GOLDEN["actions"],
        "search_results": [],
        "step": 0,
    }


def test_s6_search_counts_words_in_subject_body_and_sender_and_drops_zeros() -> None:
    found = tutorial.search(QUERY, INBOX)
    assert [email["score"] for email in found] == NUMBERS["scores"]
    assert [email["sender"] for email in found] == ["budget-team@x", "ben@x"]
    assert "score" not in ONCE


def test_s7_the_reward_of_the_tutorials_search() -> None:
    assert tutorial.search_reward(tutorial.search(QUERY, INBOX)) == pytest.approx(NUMBERS["reward"])


def test_s7_finding_nothing_costs() -> None:
    assert tutorial.search_reward(tutorial.search("zebra", INBOX)) == NUMBERS["none"]


def test_s7_the_reward_is_capped_and_counts_five_scores_and_ten_senders() -> None:
    many = [{"score": 100, "sender": "a"}] * 5
    assert tutorial.search_reward(many) == NUMBERS["cap"]
    twelve = [{"score": 1, "sender": f"s{n}"} for n in range(12)]
    assert tutorial.search_reward(twelve) == pytest.approx(GOLDEN["twelve_senders_at_score_1"])
    # A sixth score does not weigh on the mean: .1 · 2 + .01 · 1.
    assert tutorial.search_reward(
        [{"score": 2, "sender": "a"}] * 5 + [{"score": 0, "sender": "a"}]
    ) == pytest.approx(0.21)


def test_s8_filter_keeps_any_word_and_sort_has_a_defined_order() -> None:
    assert tutorial.filter_results(INBOX, "LUNCH carla") == [ONCE, NEVER]
    assert tutorial.filter_results(INBOX, "") == []
    assert tutorial.sort_results(INBOX) == [NEVER, ONCE, FOUR_TIMES]
    assert tutorial.sort_results(INBOX, "sender") == [ONCE, FOUR_TIMES, NEVER]
    assert tutorial.sort_results(INBOX, "subject") == [FOUR_TIMES, NEVER, ONCE]
    assert tutorial.sort_results(INBOX, "size") == INBOX


def test_s9_the_agent_asks_with_the_tutorials_parameters() -> None:
    asked = {"max_tokens": tutorial.MAX_TOKENS, "temperature": tutorial.TEMPERATURE}
    assert asked == GOLDEN["request"]
    assert list(tutorial.ACTIONS) == GOLDEN["actions"]


@pytest.mark.parametrize(
    ("text", "step", "found", "action"),
    [
        ("I will SEARCH for it", 0, False, "search"),
        ("search, then select", 0, True, "search"),
        ("search, then select", 1, True, "select"),
        ("search again", 3, False, "search"),
        ("Filter or select?", 1, True, "filter"),
        ("Filter or select?", 1, False, "select"),
        ("fIlTeR", 1, False, "search"),
        ("SELECT the first", 1, True, "select"),
        ("sort by date", 1, True, "search"),
        ("", 0, False, "search"),
    ],
)
def test_s10_which_action_a_reply_names(text: str, step: int, found: bool, action: str) -> None:
    assert tutorial.parse_action(text, step, [ONCE] if found else []) == action
