"""The tutorial's email search, number for number (rows S4 to S10 of the reference study).

Where the tutorial left something undefined, the docstring says what was
chosen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

ACTIONS = ("search", "filter", "sort", "select")
NOTHING_FOUND = -0.1
UNKNOWN_ACTION = -0.1
SELECTED_RIGHT = 1.0
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
    top: list[float] = [email["score"] for email in results[:5]]
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


def parse_argument(text: str, action: str, step: int) -> str:
    """What stands behind `action:` on its line (undefined in the tutorial); empty without it.

    After step 0 a search is the default action, whatever the reply says: it is for the query.
    """
    if action == "search" and step > 0:
        return ""
    match = re.search(rf"{re.escape(action)}:[ \t]*([^\n]*)", text, re.IGNORECASE)
    return match[1].strip() if match else ""


class Episode:
    """The tutorial's environment: an action gives state, reward, done and info.

    Left undefined there, chosen here: the results are kept in the state and
    the step counts every action; filtering and sorting earn nothing, or -0.1
    when a filter leaves nothing; selecting earns 1 for the right email and 0
    for another; an unknown action costs 0.1, changes nothing and is named in
    `info["error"]`.
    """

    def __init__(self, query: str, content: Sequence[Item], answer: int) -> None:
        """`content` are emails with a `number` each; `answer` is the right one's."""
        self.state = initial_state(query)
        self.selected: Item | None = None
        self._content = content
        self._answer = answer

    def step(self, action: str, argument: str = "") -> tuple[dict[str, Any], float, bool, Item]:
        """Takes one of `ACTIONS`.

        `argument` are the words to search or filter by, the query without any;
        the key to sort by, `date` without one; the number to select, that of
        the first result without one.
        """
        results = self.state["search_results"]
        reward, done, info = 0.0, False, dict[str, Any]()
        words = argument or self.state["query"]
        match action:
            case "search":
                results = search(words, self._content)
                reward = search_reward(results)
            case "filter":
                results = filter_results(results, words)
                reward = 0.0 if results else NOTHING_FOUND
            case "sort":
                results = sort_results(results, argument or "date")
            case "select":
                self.selected = self._chosen(argument)
                right = self.selected is not None and self.selected["number"] == self._answer
                reward, done = SELECTED_RIGHT * right, True
            case _:
                reward = UNKNOWN_ACTION
                info["error"] = f"unknown action {action!r}; allowed are {', '.join(ACTIONS)}"
        self.state = {
            **self.state,
            "search_results": list(results),
            "step": self.state["step"] + 1,
        }
        return self.state, reward, done, info

    def _chosen(self, argument: str) -> Item | None:
        number = re.match(r"\d{1,9}(?!\d)", argument)
        if number is None:
            return next(iter(self.state["search_results"]), None)
        return next((e for e in self._content if e["number"] == int(number[0])), None)
