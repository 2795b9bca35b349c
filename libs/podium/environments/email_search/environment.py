"""The environment: a question, an inbox, one text action a turn."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

from podium.core.errors import InvalidArgumentError, Violation
from podium.environments.agent import Agent
from podium.environments.base import Environment
from podium.environments.email_search import corpus, tutorial
from podium.environments.email_search.agents import RandomAgent, SearchingAgent
from podium.environments.email_search.mailbox import shared_mailbox
from podium.environments.types import (
    Message,
    Observation,
    Scenario,
    StepResult,
    assistant,
    system,
    user,
)

Verb = Literal["search", "filter", "sort", "select"]

INSTRUCTION = "You find emails. Answer with one action and nothing else."
EXPLANATIONS: dict[Verb, str] = {
    "search": "search: <words> shows emails that hold all the words",
    "filter": "filter: <word> keeps the shown emails that hold the word",
    "sort": "sort: newest puts the shown emails in order",
    "select": "select: <number> ends with the email that answers",
}
# A small model follows a conversation better than a description of one.
EXAMPLE = (
    user("Question: When does Olga Brandt want to meet about the roof?"),
    assistant("search: Olga Brandt roof"),
    user("Results:\n31 | Olga Brandt | Roof repair"),
    assistant("select: 31"),
)

_ACTION = re.compile(r"\s*(search|filter|sort|select):[ \t]*([^\n]*)", re.IGNORECASE)

VALID_REWARD = 0.05
HIT_REWARD = 0.15
RIGHT_REWARD = 0.8
INVALID_REWARD = -0.05


class Config(BaseModel):
    """Options of the environment."""

    model_config = ConfigDict(extra="forbid")

    max_results: int = Field(default=4, ge=1, le=24)
    """Rows that a search shows."""
    actions: tuple[Verb, ...] = get_args(Verb)
    """What the agent is told of and may do."""
    rewards: Literal["corrected", "tutorial"] = "corrected"
    """`tutorial` searches, reads replies and pays as rows S5 to S10 say; see tutorial.py."""

    @field_validator("actions")
    @classmethod
    def _can_end(cls, actions: tuple[Verb, ...]) -> tuple[Verb, ...]:
        if not {"search", "select"} <= set(actions):
            raise ValueError("must hold search and select, without which no episode succeeds")
        return actions


class EmailSearch(Environment):
    """Find one email.

    An episode ends when the agent selects. The rewards of the steps sum to 1
    for an episode that searched well and selected right: 0.05 for the first
    valid action, 0.15 when a search first shows the right email, 0.8 for
    selecting it; each action that cannot be read costs 0.05. Only selecting
    the right email brings the sum above 0.5.

    Metrics: `success`; `valid_format`, the share of actions that could be
    read; `search_hit`, whether a search showed the right email; `turns`.
    """

    name: ClassVar[str] = "email_search"
    description: ClassVar[str] = "Find the one email of an inbox that answers a question."
    splits: ClassVar[tuple[str, ...]] = ("train", "heldout")
    Config: ClassVar[type[BaseModel]] = Config
    baselines: ClassVar[Mapping[str, Callable[[int], Agent]]] = {
        "scripted": SearchingAgent,
        "random": RandomAgent,
    }

    def scenarios(self, split: str) -> Sequence[Scenario]:
        return [
            Scenario(
                id=f"{question.email.inbox}/{question.email.number}",
                split=split,
                data={
                    "question": question.text,
                    "inbox": question.email.inbox,
                    "answer": question.email.number,
                },
            )
            for question in corpus.questions(split)
        ]

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        missing = [name for name in ("question", "inbox", "answer") if name not in scenario.data]
        if missing:
            raise InvalidArgumentError(
                violations=[Violation(f"scenario.data.{name}", "is missing") for name in missing]
            )
        self._question = str(scenario.data["question"])
        self._inbox = str(scenario.data["inbox"])
        self._answer = int(scenario.data["answer"])
        self._results: list[corpus.Email] = []
        self._selected: corpus.Email | None = None
        self._turns = self._valid = 0
        self._hit = False
        self._tutorial = self._tutorial_episode() if self.config.rewards == "tutorial" else None
        rules = "\n".join((INSTRUCTION, *(EXPLANATIONS[verb] for verb in self.config.actions)))
        question = user(f"Question: {self._question}")
        return Observation([system(rules), *EXAMPLE, question], state=self._state())

    async def step(self, action: Message) -> StepResult:
        self._turns += 1
        if self._tutorial is not None:
            return self._tutorial_step(self._tutorial, action.content)
        match = _ACTION.match(action.content)
        if match is None or match[1].lower() not in self.config.actions:
            return self._result(
                "Unknown action. Write search: <words> or select: <number>", INVALID_REWARD
            )
        reward = VALID_REWARD if self._valid == 0 else 0.0
        self._valid += 1
        verb, argument = match[1].lower(), match[2].strip()
        if verb == "select":
            number = re.match(r"\d{1,9}(?!\d)", argument)
            if number is not None:
                self._selected = shared_mailbox().get(self._inbox, int(number[0]))
            right = number is not None and int(number[0]) == self._answer
            return self._result("", reward + RIGHT_REWARD * right, ended=True, success=right)
        if verb == "search":
            self._results = shared_mailbox().search(self._inbox, argument, self.config.max_results)
            if not self._hit and any(email.number == self._answer for email in self._results):
                self._hit = True
                reward += HIT_REWARD
        elif verb == "filter":
            word = argument.lower()
            self._results = [
                email
                for email in self._results
                if word in f"{email.subject} {email.body} {email.sender}".lower()
            ]
        else:
            self._results.sort(key=lambda email: email.date, reverse=argument.lower() != "oldest")
        return self._result(self._listing(), reward)

    def _tutorial_episode(self) -> tutorial.Episode:
        content = [asdict(email) for email in corpus.emails() if email.inbox == self._inbox]
        return tutorial.Episode(self._question, content, self._answer)

    def _tutorial_step(self, episode: tutorial.Episode, text: str) -> StepResult:
        before = episode.state
        verb = tutorial.parse_action(text, before["step"], before["search_results"])
        self._valid += any(name in text.lower() for name in tutorial.ACTIONS)
        argument = tutorial.parse_argument(text, verb, before["step"])
        state, reward, done, _ = episode.step(verb, argument)
        self._results = [_email(item) for item in state["search_results"]]
        shown = self._results[: self.config.max_results]
        self._hit |= any(email.number == self._answer for email in shown)
        if not done:
            return self._result(self._listing(), reward)
        self._selected = _email(episode.selected) if episode.selected is not None else None
        right = self._selected is not None and self._selected.number == self._answer
        return self._result("", reward, ended=True, success=right)

    def _listing(self) -> str:
        if not self._results:
            return "Results: none"
        shown = self._results[: self.config.max_results]
        rows = [f"{e.number} | {e.sender} | {e.subject}" for e in shown]
        return "\n".join(("Results:", *rows))

    def _state(self) -> dict[str, Any]:
        if self._tutorial is not None:
            return self._tutorial.state
        return {
            "query": self._question,
            "available_actions": list(self.config.actions),
            "search_results": [
                {"number": e.number, "sender": e.sender, "subject": e.subject}
                for e in self._results
            ],
            "step": self._turns,
        }

    def _info(self) -> dict[str, Any]:
        """The answer, and what the judge's weighted criteria compare."""
        info: dict[str, Any] = {
            "answer": self._answer,
            "result": {"selected_email": _email_json(self._selected)},
        }
        target = shared_mailbox().get(self._inbox, self._answer)
        if target is not None:
            info["expected"] = {"keywords": target.subject.split(), "sender": target.sender}
        return info

    def _result(
        self, text: str, reward: float, *, ended: bool = False, success: bool = False
    ) -> StepResult:
        return StepResult(
            Observation([user(text)] if text else [], state=self._state()),
            reward=reward,
            terminated=ended,
            metrics={
                "success": float(success),
                "valid_format": self._valid / self._turns,
                "search_hit": float(self._hit),
                "turns": float(self._turns),
            },
            info=self._info(),
        )


def _email(item: tutorial.Item) -> corpus.Email:
    return corpus.Email(**{name: value for name, value in item.items() if name != "score"})


def _email_json(email: corpus.Email | None) -> dict[str, str]:
    if email is None:
        return {}
    return {"sender": email.sender, "subject": email.subject, "body": email.body}
