"""The tutorial's email search, number for number (rows S5 to S10 of the reference study).

Where the tutorial left something undefined, the docstring says what was
chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ACTIONS = ("search", "filter", "sort", "select")
NOTHING_FOUND = -0.1
TEMPERATURE = 0.7
MAX_TOKENS = 150

Item = Mapping[str, Any]


def initial_state(query: str) -> dict[str, Any]:
    """The state after reset: exactly these keys."""
    return {
        "query": query,
        "available_actions": list(ACTIONS),
        "search_results": [],
        "step": 0,
    }


def score(query: str, email: Item) -> int:
    """Sum over the query's words of how often each stands in "subject body sender"."""
    text = f"{email['subject']} {email['body']} {email['sender']}".lower()
    return sum(text.count(word) for word in query.lower().split())


def search(query: str, content: Sequence[Item]) -> list[dict[str, Any]]:
    """Emails with a score above 0, best first, each with its `score`."""
    scored = [{**email, "score": score(query, email)} for email in content]
    found = [email for email in scored if email["score"] > 0]
    return sorted(found, key=lambda email: email["score"], reverse=True)


def search_reward(results: Sequence[Item]) -> float:
    """min(0.1 · mean score of the top 5 + 0.01 · senders in the top 10, 1); none: -0.1."""
    if not results:
        return NOTHING_FOUND
    top = [email["score"] for email in results[:5]]
    senders = {email["sender"] for email in results[:10]}
    return min(0.1 * sum(top) / len(top) + 0.01 * len(senders), 1.0)


def filter_results(results: Sequence[Item], words: str) -> list[Item]:
    """Those whose subject, body or sender hold any of the words (undefined in the tutorial)."""
    wanted = words.lower().split()
    return [
        email
        for email in results
        if any(w in f"{email['subject']} {email['body']} {email['sender']}".lower() for w in wanted)
    ]


def sort_results(results: Sequence[Item], key: str = "date") -> list[Item]:
    """By `date` (newest first), `sender` or `subject`; any other key leaves the order."""
    if key not in ("date", "sender", "subject"):
        return list(results)
    return sorted(results, key=lambda email: email.get(key, ""), reverse=key == "date")


def parse_action(text: str, step: int, results: Sequence[Item]) -> str:
    """The action that a reply names, case-insensitively.

    Search counts only at step 0, filter only when there are results and
    before select; anything else is a search.
    """
    lowered = text.lower()
    if "search" in lowered and step == 0:
        return "search"
    if "filter" in lowered and results:
        return "filter"
    if "select" in lowered:
        return "select"
    return "search"
