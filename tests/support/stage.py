"""Test double: an environment that says what a test has written down, turn for turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import pytest
from podium.environments import Environment, Message, Observation, Scenario, StepResult, catalog


class Stage(Environment):
    """Says the lines of its class in order and keeps what it is told."""

    name: ClassVar[str] = "stage"
    first: ClassVar[Observation]
    then: ClassVar[Iterator[StepResult]]
    told: ClassVar[list[Message]]

    def scenarios(self, split: str) -> Sequence[Scenario]:
        return [Scenario("only")]

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        return Stage.first

    async def step(self, action: Message) -> StepResult:
        Stage.told.append(action)
        return next(Stage.then)


def set_stage(
    monkeypatch: pytest.MonkeyPatch, first: Observation, *then: StepResult | Observation
) -> list[Message]:
    """Makes it the environment of every episode, and returns what it is going to be told.

    After the last of `then` the episode ends.
    """
    results = [each if isinstance(each, StepResult) else StepResult(each) for each in then]
    results.append(StepResult(Observation(), reward=1.0, terminated=True))
    monkeypatch.setattr(catalog, "load_class", lambda path: Stage)
    monkeypatch.setattr(Stage, "first", first, raising=False)
    monkeypatch.setattr(Stage, "then", iter(results), raising=False)
    monkeypatch.setattr(Stage, "told", [], raising=False)
    return Stage.told
