"""Episodes as a check plays them: as a server would, noting all that happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from podium.environment.v1 import environment_service_pb2 as pb
from podium.environments.agent import Agent
from podium.environments.base import Environment
from podium.environments.serving.convert import (
    message_to_pb,
    observation_from_pb,
    scenario_to_pb,
)
from podium.environments.serving.session import LocalSession
from podium.environments.types import Message, Observation, Scenario

T = TypeVar("T")
SEED = 7


@dataclass(frozen=True)
class Bounds:
    """How much is played."""

    scenarios: int = 4
    """The first so many of each split."""
    attempts: int = 4
    """Of each of them, at most."""
    turns: int = 20
    """After which an episode is cut."""
    slow_seconds: float = 1.0
    """A reset or step that takes longer is told of."""
    hung_seconds: float = 30.0
    """One that takes longer is given up."""


@dataclass
class Play:
    """One episode."""

    scenario: Scenario
    said: list[Message] = field(default_factory=list)
    seen: list[pb.Observation] = field(default_factory=list)
    """What reset gave, and each step."""
    rewards: list[float] = field(default_factory=list)
    """Of each step."""
    total: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    ended: bool = False
    failure: Exception | None = None
    failed_in: str = ""
    """`baseline`, `reset`, `step`, `score` or `close`, where something was raised."""
    hung: bool = False
    slowest: float = 0.0
    slowest_in: str = ""


@dataclass
class Stage:
    """Where episodes are played."""

    kind: type[Environment]
    config: Mapping[str, Any]
    bounds: Bounds
    clock: Callable[[], float] = time.monotonic
    begin: Callable[[str], None] = lambda what: None
    """Told before each call of the environment: somebody else may watch that it returns."""

    async def play(
        self,
        scenario: Scenario,
        split: str,
        agent: Callable[[int], Agent],
        script: list[Message] | None = None,
    ) -> Play:
        """Plays one episode with an agent made of its seed, or says what `script` has instead.

        What the environment raises is noted and not raised.
        """
        play = Play(scenario)
        session: LocalSession | None = None
        try:
            play.failed_in = "baseline"
            player = agent(SEED)
            play.failed_in = "reset"
            session = LocalSession(self.kind(self.config))
            sent = scenario_to_pb(scenario, split)
            play.seen.append(await self._timed(play, "reset", session.reset(sent, SEED)))
            await self._steps(play, session, player, script)
            play.failed_in = "score"
            score = await self._timed(play, "score", session.score())
            play.total = sum(play.rewards) + score.reward
            play.metrics |= score.metrics
        except TimeoutError as late:
            play.failure, play.hung = late, True
        except Exception as raised:
            play.failure = raised
        else:
            play.failed_in = ""
        if session is not None:
            await self._close(play, session)
        return play

    async def _steps(
        self, play: Play, session: LocalSession, agent: Agent, script: list[Message] | None
    ) -> None:
        while len(play.said) < self.bounds.turns and not play.ended:
            if script is None:
                play.failed_in = "baseline"
                action = await agent.act(_shown(play))
            elif len(play.said) == len(script):
                return
            else:
                action = script[len(play.said)]
            play.said.append(action)
            play.failed_in = "step"
            result = await self._timed(play, "step", session.step(message_to_pb(action)))
            play.seen.append(result.observation)
            play.rewards.append(result.reward)
            play.metrics |= result.metrics
            play.ended = result.terminated or result.truncated

    async def _close(self, play: Play, session: LocalSession) -> None:
        try:
            await self._timed(play, "close", session.close())
        except Exception as raised:
            if play.failure is None:
                play.failure, play.failed_in = raised, "close"

    async def _timed(self, play: Play, what: str, call: Awaitable[T]) -> T:
        self.begin(what)
        began = self.clock()
        try:
            return await asyncio.wait_for(call, self.bounds.hung_seconds)
        finally:
            took = self.clock() - began
            self.begin("")
            if took > play.slowest:
                play.slowest, play.slowest_in = took, what


def _shown(play: Play) -> Observation:
    return observation_from_pb(play.seen[-1])
