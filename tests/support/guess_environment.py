"""Test double: an environment whose failures the agent's own words choose."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from podium.environments import Environment, Message, Observation, Scenario, StepResult, Tool, user
from pydantic import BaseModel, ConfigDict

TOOL = Tool(
    "guess",
    "Guesses a digit.",
    {"type": "object", "properties": {"digit": {"type": "integer"}}, "required": ["digit"]},
)


class Options(BaseModel):
    """Options of the double."""

    model_config = ConfigDict(extra="forbid")

    tools: bool = False
    """Offer `TOOL`, and take guesses as calls of it."""
    reset: str = ""
    """What reset does: `raise`, `hang` or nothing special."""
    close: str = ""
    """What close does: likewise."""


class Guess(Environment):
    """Guess the digit: 1 when right, 0 and a hint when wrong."""

    name: ClassVar[str] = "guess"
    description: ClassVar[str] = "Guess a digit."
    splits: ClassVar[tuple[str, ...]] = ("train", "heldout")
    Config: ClassVar[type[BaseModel]] = Options

    open: ClassVar[int] = 0
    """Episodes that were reset and not closed, in this process."""
    hung: ClassVar[int] = 0
    """How often one began to hang, in this process."""
    seeds: ClassVar[list[int]] = []
    """What each reset was given."""

    def scenarios(self, split: str) -> Sequence[Scenario]:
        digits = range(5) if split == "train" else range(5, 8)
        return [Scenario(f"digit-{n}", {"answer": n}) for n in digits]

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        Guess.open += 1
        Guess.seeds.append(seed)
        self._answer = int(scenario.data["answer"])
        self._tries = 0
        await _act(self.config.reset)
        tools = [TOOL] if self.config.tools else []
        return Observation([user("Guess a digit.")], tools, {"tries": 0})

    async def step(self, action: Message) -> StepResult:
        said = action.tool_calls[0].arguments_json if action.tool_calls else action.content
        self._tries += 1
        match said:
            case "nan" | "inf" | "-inf":
                return StepResult(Observation(), reward=float(said))
            case "nan metric":
                return StepResult(Observation(), metrics={"x": float("nan")})
            case "not json":
                return StepResult(Observation(), info={"x": object()})
            case "wrong type":
                wrong: Any = {"reward": 1.0}
                return wrong  # type: ignore[no-any-return]
            case "cut":
                return StepResult(self._seen(), reward=0.5, truncated=True)
            case "long state":
                return StepResult(Observation([user("?")], state={"text": "x" * 2**20}))
        await _act(said)
        digits = [int(letter) for letter in said if letter.isdecimal()]
        if self._answer in digits:
            metrics = {"success": 1.0}
            return StepResult(
                self._seen(), reward=1.0, terminated=True, metrics=metrics, info={"said": said}
            )
        hint = "higher" if digits and digits[0] < self._answer else "lower"
        return StepResult(self._seen(hint), metrics={"success": 0.0})

    def _seen(self, *hints: str) -> Observation:
        tools = [TOOL] if self.config.tools and hints else []
        return Observation([user(hint) for hint in hints], tools, {"tries": self._tries})

    async def close(self) -> None:
        Guess.open -= 1
        await _act(self.config.close)


async def _act(what: str) -> None:
    match what:
        case "raise":
            raise RuntimeError("the wheel came off")
        case "times out":
            raise TimeoutError("the database of the environment is slow")
        case "hang":
            Guess.hung += 1
            await asyncio.sleep(3600)
