"""Test double: an environment that talks for exactly as many turns as a test wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from podium.environments import (
    Environment,
    Message,
    Observation,
    Scenario,
    StepResult,
    system,
    user,
)

TURNS = 8


class LongTalk(Environment):
    """Asks `TURNS` times, with text that tokenizers split in more than one way."""

    name: ClassVar[str] = "long_talk"
    description: ClassVar[str] = "Eight turns of talk."
    splits: ClassVar[tuple[str, ...]] = ("train",)

    def scenarios(self, split: str) -> Sequence[Scenario]:
        return [Scenario("talk", split, {})]

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        self._turn = 0
        return Observation([system("You tell stories."), user("Begin  a story .")])

    async def step(self, action: Message) -> StepResult:
        self._turn += 1
        more = user(f"Go on ,\n part{self._turn}: naïve 日本 <|im_end|>{' ' * self._turn}!")
        return StepResult(
            Observation([more]), reward=float(self._turn), terminated=self._turn == TURNS
        )
