"""Test double: an environment that keeps what it was made to do, and waits when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from podium.core.errors import UnavailableError
from podium.core.time_limits import queued
from podium.environments import (
    Environment,
    Message,
    Observation,
    Scenario,
    Score,
    StepResult,
    user,
)
from pydantic import BaseModel, ConfigDict


class Options(BaseModel):
    """Options of the double."""

    model_config = ConfigDict(extra="forbid")

    name: str = ""
    """Told in every entry of the log."""
    score: str = ""
    """What score does: `raise`, `nan`, `wrong type` or nothing special."""


class Counting(Environment):
    """One point a step; the score is ten times the steps that were finished."""

    name: ClassVar[str] = "counting"
    Config: ClassVar[type[BaseModel]] = Options

    log: ClassVar[list[str]] = []
    open: ClassVar[int] = 0
    """Episodes that were reset and not closed."""
    release: ClassVar[asyncio.Event]
    """What `wait` waits for, and `queue` as for a place that is shared."""
    _open = False

    @classmethod
    def forget(cls) -> None:
        """As in a new process."""
        cls.log.clear()
        cls.open = 0
        cls.release = asyncio.Event()

    def scenarios(self, split: str) -> Sequence[Scenario]:
        return [Scenario("only")]

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        Counting.open += 1
        self._open, self._steps = True, 0
        self._note("reset")
        return Observation([user("Count.")])

    async def step(self, action: Message) -> StepResult:
        said = action.content
        self._note(said)
        match said:
            case "wait":
                await Counting.release.wait()
            case "queue":
                with queued():
                    await Counting.release.wait()
            case "surrogate":
                raise RuntimeError("\ud800")
            case "raise":
                raise RuntimeError("the wheel came off")
            case "away":
                raise UnavailableError("the game server restarts")
        self._steps += 1
        return StepResult(
            Observation([user(f"{self._steps}")]),
            reward=1.0,
            terminated=said == "end",
            metrics={"steps": float(self._steps)},
            info={"said": said, "kept": True},
        )

    async def score(self) -> Score:
        self._note("score")
        match self.config.score:
            case "raise":
                raise RuntimeError("no jury")
            case "nan":
                return Score(float("nan"))
            case "wrong type":
                wrong: Any = 1.0
                return wrong  # type: ignore[no-any-return]
        return Score(10.0 * self._steps, {"scored": 1.0}, {"said": "scored"})

    async def close(self) -> None:
        Counting.open -= self._open
        self._note("close")

    def _note(self, what: str) -> None:
        Counting.log.append(f"{self.config.name}:{what}" if self.config.name else what)
