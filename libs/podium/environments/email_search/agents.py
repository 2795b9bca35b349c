"""Agents that search emails without a model."""

from __future__ import annotations

import random
import re

from podium.environments.agent import Agent
from podium.environments.email_search.corpus import INBOX_SIZE
from podium.environments.types import Message, Observation, assistant

_NAME = re.compile(r"[A-Z][a-z]+ [A-Z][a-z]+")


class SearchingAgent(Agent):
    """Searches for who the question names and one more of its words, and selects the first found.

    It tries the longest word first, as short ones are seldom about the topic.
    """

    def __init__(self, seed: int = 0) -> None:
        """It draws nothing at random: `seed` changes nothing."""
        super().__init__(seed)
        self._searches: list[str] | None = None

    async def act(self, observation: Observation) -> Message:
        found = observation.state["search_results"]
        if found:
            return assistant(f"select: {found[0]['number']}")
        if self._searches is None:
            self._searches = _searches(observation.state["query"])
        return assistant(f"search: {self._searches.pop(0)}" if self._searches else "select: none")


class RandomAgent(Agent):
    """Any action, with words of the question or a number of what is shown."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._rng = random.Random(seed)

    async def act(self, observation: Observation) -> Message:
        state = observation.state
        verb = self._rng.choice(state["available_actions"])
        if verb == "sort":
            return assistant(f"sort: {self._rng.choice(['newest', 'oldest'])}")
        if verb == "select":
            shown = [row["number"] for row in state["search_results"]]
            return assistant(f"select: {self._rng.choice(shown or range(1, INBOX_SIZE + 1))}")
        return assistant(f"{verb}: {self._rng.choice(re.findall('[A-Za-z]+', state['query']))}")


def _searches(question: str) -> list[str]:
    name = next(iter(_NAME.findall(question)), "")
    words = re.findall("[a-z]+", question.replace(name, "").lower())
    return [f"{name} {word}".strip() for word in sorted(words, key=len, reverse=True)] + [name]
