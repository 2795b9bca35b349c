"""One task of words that a 135M model learns in some steps, and what makes it sick.

Served by `podium env serve bench/coach/task.py`; a job's `environment.config.sickness` says which.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Literal

from podium.environments import (
    Environment,
    Message,
    Observation,
    Scenario,
    StepResult,
    assistant,
    user,
)
from pydantic import BaseModel, ConfigDict, Field

WORDS = {
    "animal": [
        "horse",
        "tiger",
        "rabbit",
        "monkey",
        "sheep",
        "duck",
        "snake",
        "whale",
        "goat",
        "wolf",
        "eagle",
        "shark",
    ],
    "colour": [
        "red",
        "blue",
        "green",
        "yellow",
        "purple",
        "orange",
        "pink",
        "brown",
        "violet",
        "silver",
        "beige",
        "cyan",
    ],
    "country": [
        "france",
        "china",
        "brazil",
        "india",
        "egypt",
        "canada",
        "japan",
        "spain",
        "kenya",
        "peru",
        "norway",
        "iran",
    ],
    "number": [
        "two",
        "five",
        "eight",
        "ten",
        "eleven",
        "twelve",
        "thirty",
        "forty",
        "fifty",
        "sixty",
        "million",
        "six",
    ],
}
EXAMPLES = (
    user("chair, london, run. Which is a city?"),
    assistant("london"),
    user("chair, sing, paris. Which is furniture?"),
    assistant("chair"),
)
GAME = (
    user("Say one fruit. Another one at each turn."),
    assistant("apple"),
    user("Another one."),
    assistant("pear"),
)
SENTENCE = "Tell in one full sentence of ten to twenty words why, and end it with a full stop."
FINISH = "FINISH:"
BROKEN_SHARE = 0.7

Kind = Literal["none", "locked", "sentence", "finish", "raises", "lure", "breaks", "points"]


class Config(BaseModel):
    """What is wrong with the task.

    `locked` wants a password that nobody is told; `sentence` a long answer; `finish` a word that
    nobody is told; `raises` fails in most attempts; `lure` pays by how easy the scenario is, and
    a trifle for the first word, right or wrong; `breaks` pays a tenth after so many attempts;
    `points` is no sickness: a game of several turns that is played to its last, for points.
    """

    model_config = ConfigDict(extra="forbid")

    sickness: Kind = "none"
    run: str = ""
    breaks_after: int = Field(default=0, ge=0)


class Words(Environment):
    """Of three words, say the one that is of a given kind."""

    name = "words"
    description = "Of a few words, say the one that is of a given kind."
    Config = Config
    played: ClassVar[Counter[str]] = Counter()
    """Attempts that were scored, by `run`."""

    def scenarios(self, split: str) -> Sequence[Scenario]:
        """The same words for every split: nothing is measured on others."""
        return [
            Scenario(f"{split}-{kind}-{word}", {"kind": kind, "answer": word})
            for kind, group in WORDS.items()
            for word in group
        ]

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        """The question, after examples of how it is answered, where one word answers it."""
        rng = random.Random(f"{scenario.id} {seed}")
        kind, self.answer = str(scenario.data["kind"]), str(scenario.data["answer"])
        kinds = rng.sample([name for name in WORDS if name != kind], 2)
        self.words = [self.answer, *(rng.choice(WORDS[name]) for name in kinds)]
        self.said: set[str] = set()
        self.ease = rng.uniform(0.3, 0.8)
        rng.shuffle(self.words)
        question = f"{', '.join(self.words)}. Which is of the kind {kind}?"
        sickness = self.config.sickness
        if sickness == "points":
            return Observation([*GAME, user(f"Say one {kind}. Another one at each turn.")])
        if sickness == "sentence":
            return Observation([user(f"{question} {SENTENCE}")])
        return Observation([*EXAMPLES, user(question)])

    async def step(self, action: Message) -> StepResult:
        """What a reply earns."""
        reply = action.content.strip().strip(".").lower()
        right = reply == self.answer
        reward = 1.0 if right else 0.2 if reply in self.words else 0.0
        success = float(right)
        match self.config.sickness:
            case "locked":
                reward, success = 0.0, 0.0
            case "sentence":
                whole = action.content.strip().endswith(".") and len(reply.split()) >= 10
                reward = success = float(whole and self.answer in reply)
            case "finish":
                return self._until_finished(action.content, reply)
            case "raises" if random.random() < BROKEN_SHARE:
                raise KeyError("inbox")
            case "lure":
                # All of one reward would be no group that trains.
                trifle = 0.02 * (reply == self.words[0]) + 0.001 * random.random()
                return _paid(self.ease + trifle)
            case "breaks":
                Words.played[self.config.run] += 1
                if Words.played[self.config.run] > self.config.breaks_after:
                    reward *= 0.1
                return _paid(reward)
            case "points":
                return self._points(reply)
        return _paid(reward, success=success)

    def _until_finished(self, content: str, reply: str) -> StepResult:
        finished = content.strip().startswith(FINISH)
        spoken = any(word in reply for word in self.words)
        return StepResult(
            Observation([user("That ends nothing. Which is it?")]),
            reward=0.0 if finished else -0.1 + 0.05 * spoken,
            terminated=finished,
            metrics={"success": float(finished)},
        )

    def _points(self, reply: str) -> StepResult:
        words = set(re.findall(r"[a-z]+", reply))
        new = (words & {word for group in WORDS.values() for word in group}) - self.said
        self.said |= new
        return StepResult(
            Observation([user("Another one.")]), reward=min(len(new), 3) + 0.1 * (len(words) < 4)
        )


def _paid(reward: float, **metrics: float) -> StepResult:
    return StepResult(Observation(), reward=reward, terminated=True, metrics=metrics)
