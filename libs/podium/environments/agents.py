"""What acts in an environment without a model: scripted agents and baselines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podium.environments.base import Environment
from podium.environments.types import Message, Observation, Scenario


class Agent(ABC):
    """Plays one episode: an instance is made for each, with the episode's seed.

    It sees what a model would, and `Observation.state`, which holds the same as data.
    """

    def __init__(self, seed: int = 0) -> None:
        """All randomness must come from `seed`."""
        self.seed = seed

    @abstractmethod
    async def act(self, observation: Observation) -> Message:
        """The assistant's message after an observation."""


class Scripted(Agent):
    """Says given lines in order, and the last one again when they run out."""

    def __init__(self, lines: Sequence[str], seed: int = 0) -> None:
        """`lines` has at least one."""
        super().__init__(seed)
        self._lines = list(lines)

    async def act(self, observation: Observation) -> Message:
        line = self._lines[0] if len(self._lines) == 1 else self._lines.pop(0)
        return Message("assistant", line)


@dataclass(frozen=True)
class Played:
    """How an episode went."""

    reward: float
    """Sum over steps."""
    turns: int
    terminated: bool
    truncated: bool
    metrics: Mapping[str, float] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)


async def play(
    environment: Environment, scenario: Scenario, agent: Agent, *, seed: int = 0, max_turns: int
) -> Played:
    """Plays one episode in this process and closes the environment.

    Raises whatever the environment or the agent raises.
    """
    reward, metrics, info = 0.0, dict[str, float](), dict[str, Any]()
    try:
        observation = await environment.reset(scenario, seed)
        for turn in range(1, max_turns + 1):
            result = await environment.step(await agent.act(observation))
            reward += result.reward
            metrics.update(result.metrics)
            info, observation = dict(result.info), result.observation
            if result.terminated or result.truncated:
                return Played(reward, turn, result.terminated, result.truncated, metrics, info)
    finally:
        await environment.close()
    return Played(reward, max_turns, False, False, metrics, info)
