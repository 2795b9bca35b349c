"""Agents that need no model."""

from __future__ import annotations

import json
import random
import re

from podium.environments.agent import Agent
from podium.environments.search_qa.actions import Verb
from podium.environments.search_qa.corpus import FORMS, QuestionForm, extract
from podium.environments.types import Message, Observation, ToolCall, assistant

_WORDS = {"town": "town river", "person": "born", "novel": "novel", "company": "company"}


class Reader(Agent):
    """Searches, reads the document about what it looks for, and follows it to the answer.

    It knows the forms of the questions and of the documents, and reads only what it is shown.
    """

    def __init__(self, seed: int = 0) -> None:
        """It draws nothing at random: `seed` changes nothing."""
        super().__init__(seed)
        self._hop = 0
        self._name = ""

    async def act(self, observation: Observation) -> Message:
        form, name = _form(observation.state["question"])
        self._name = self._name or name
        for text in observation.state["results"]:
            if text.startswith(f"{self._name} "):
                self._name = extract(form.hops[self._hop], text) or ""
                self._hop += 1
                if self._hop == len(form.hops):
                    return _say(observation, "answer", self._name)
        # The name alone stands in other documents too.
        return _say(observation, "search", f"{self._name} {_WORDS[form.hops[self._hop].kind]}")


class Guesser(Agent):
    """Searches for a word of the question, or answers with a word of what it is shown."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._rng = random.Random(seed)

    async def act(self, observation: Observation) -> Message:
        state = observation.state
        shown = re.findall(r"\w+", " ".join(state["results"]))
        if shown and self._rng.random() < 0.5:
            return _say(observation, "answer", self._rng.choice(shown))
        return _say(observation, "search", self._rng.choice(re.findall(r"\w+", state["question"])))


def _say(observation: Observation, verb: Verb, argument: str) -> Message:
    if not observation.tools:
        return assistant(f"{verb}: {argument}")
    parameter = {"search": "query", "answer": "text"}[verb]
    call = ToolCall(f"call_{verb}", verb, json.dumps({parameter: argument}))
    return Message("assistant", tool_calls=(call,))


def _form(question: str) -> tuple[QuestionForm, str]:
    """The form of a question and the entity that it names."""
    fitting = [
        (form, question.removeprefix(before).removesuffix(after))
        for form in FORMS
        for before, _, after in [form.text.partition("{name}")]
        if question.startswith(before) and question.endswith(after)
    ]
    # "In which town was {name} born?" also fits questions about an author.
    return min(fitting, key=lambda found: len(found[1]))
