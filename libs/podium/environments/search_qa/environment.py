"""The environment: a question, a search tool, an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from podium.core.answers import exact_match, token_f1
from podium.core.errors import InvalidArgumentError, Violation
from podium.environments.agent import Agent
from podium.environments.base import Environment
from podium.environments.search_qa.actions import TOOLS, SearchAction, actions_of
from podium.environments.search_qa.agents import Guesser, Reader
from podium.environments.search_qa.corpus import COUNTS, Document, questions
from podium.environments.search_qa.library import search
from podium.environments.types import (
    Message,
    Observation,
    Scenario,
    StepResult,
    assistant,
    system,
    tool_result,
    user,
)

WITH_TOOLS = (
    "You answer questions. Find out with the tool search, more than once if need be, "
    "then call the tool answer with the answer alone."
)
WITH_TEXT = (
    "You answer questions. Answer with one action and nothing else.\n"
    "search: <words> shows the documents that fit the words best\n"
    "answer: <text> ends with the answer, in as few words as possible"
)
# A small model follows a conversation better than a description of one.
EXAMPLE = (
    user("Question: In which town was the author of the novel The Gate of Olm born?"),
    assistant("search: The Gate of Olm author"),
    user("1. The Gate of Olm is a novel by Ilse Undt about a king. It was published in 1907."),
    assistant("search: Ilse Undt born"),
    user("1. Ilse Undt is a nurse who was born in Esk in 1871."),
    assistant("answer: Esk"),
)

VALID_REWARD = 0.05
FOUND_REWARD = 0.1
F1_REWARD = 0.35
EXACT_REWARD = 0.5
INVALID_REWARD = -0.05


class Config(BaseModel):
    """Options of the environment."""

    model_config = ConfigDict(extra="forbid")

    tools: bool = True
    """Offer the actions as tools; otherwise explain them as text. Both are always understood."""
    max_results: int = Field(default=3, ge=1, le=10)
    """Documents that a search shows."""


class SearchQa(Environment):
    """Answer a question from documents.

    An episode ends with the answer. The rewards of the steps sum to 1 for an
    episode that searched well and answered right: 0.05 for the first turn
    without a mistake, 0.1 when a search first shows the document that holds
    the answer, 0.35 times the answer's token F1, 0.5 for an exact match; each
    turn with a call or text that cannot be done costs 0.05. Only an exact
    match brings the sum above 0.5.

    Metrics: `success`, an exact match; `f1`; `found`, whether a search showed
    the document with the answer; `valid_format`, the share of turns without a
    mistake; `turns`.
    """

    name: ClassVar[str] = "search_qa"
    description: ClassVar[str] = "Answer questions by searching documents, some in two steps."
    splits: ClassVar[tuple[str, ...]] = ("train", "heldout")
    Config: ClassVar[type[BaseModel]] = Config
    baselines: ClassVar[Mapping[str, Callable[[int], Agent]]] = {
        "scripted": Reader,
        "random": Guesser,
    }

    def scenarios(self, split: str) -> Sequence[Scenario]:
        return [
            Scenario(
                id=f"{split}-{number}",
                split=split,
                data={
                    "question": question.text,
                    "collection": split,
                    "answer": question.answer,
                    "documents": list(question.names),
                },
            )
            for number, question in enumerate(questions(split))
        ]

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        self._read(scenario.data)
        self._results: list[Document] = []
        self._given = ""
        self._turns = self._valid = 0
        self._found = False
        question = user(f"Question: {self._question}")
        if self.config.tools:
            return self._observe([system(WITH_TOOLS), question])
        return self._observe([system(WITH_TEXT), *EXAMPLE, question])

    async def step(self, action: Message) -> StepResult:
        self._turns += 1
        reward, messages, mistake = 0.0, list[Message](), False
        for wanted in actions_of(action):
            if wanted.verb == "answer":
                self._given = wanted.argument
                return self._result([], reward + self._pay(mistake) + self._score(), ended=True)
            text = wanted.error
            if wanted.verb == "search":
                text, earned = self._search(wanted.argument)
                reward += earned
            mistake = mistake or bool(wanted.error)
            messages.append(_reply(wanted, text))
        return self._result(messages, reward + self._pay(mistake), ended=False)

    def _search(self, words: str) -> tuple[str, float]:
        self._results = search(self._collection, words, self.config.max_results)
        lines = [f"{n}. {document.text}" for n, document in enumerate(self._results, start=1)]
        found = any(document.name == self._documents[-1] for document in self._results)
        reward = FOUND_REWARD if found and not self._found else 0.0
        self._found = self._found or found
        return "\n".join(lines) or "No document has any of these words.", reward

    def _pay(self, mistake: bool) -> float:
        if mistake:
            return INVALID_REWARD
        self._valid += 1
        return VALID_REWARD if self._valid == 1 else 0.0

    def _score(self) -> float:
        return F1_REWARD * self._f1() + EXACT_REWARD * self._exact()

    def _f1(self) -> float:
        return token_f1(self._given, [self._answer])

    def _exact(self) -> bool:
        return exact_match(self._given, [self._answer])

    def _read(self, data: Mapping[str, Any]) -> None:
        violations = [
            Violation(f"scenario.data.{name}", "is missing")
            for name in ("question", "collection", "answer", "documents")
            if not data.get(name)
        ]
        if not violations and data["collection"] not in COUNTS:
            violations = [
                Violation(
                    "scenario.data.collection",
                    f"got {data['collection']!r}; allowed are {', '.join(COUNTS)}",
                )
            ]
        if violations:
            raise InvalidArgumentError(violations=violations)
        self._question, self._collection = str(data["question"]), str(data["collection"])
        self._answer, self._documents = str(data["answer"]), list(data["documents"])

    def _observe(self, messages: Sequence[Message]) -> Observation:
        state = {
            "question": self._question,
            "results": [document.text for document in self._results],
            "step": self._turns,
        }
        return Observation(messages, tools=TOOLS if self.config.tools else (), state=state)

    def _result(self, messages: Sequence[Message], reward: float, *, ended: bool) -> StepResult:
        return StepResult(
            self._observe(messages),
            reward=reward,
            terminated=ended,
            metrics={
                "success": float(self._exact()),
                "f1": self._f1(),
                "found": float(self._found),
                "valid_format": self._valid / self._turns,
                "turns": float(self._turns),
            },
            # What the judge's `question_answering` criterion reads.
            info={"result": self._given, "expected": [self._answer]},
        )


def _reply(action: SearchAction, text: str) -> Message:
    return tool_result(action.call, text) if action.call else user(text)
