"""What acts in an environment without a model: scripted agents and baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from podium.environments.agent import Agent
from podium.environments.base import Environment
from podium.environments.types import Message, Observation, Scenario, Tool


class Scripted(Agent):
    """Says given lines in order, and the last one again when they run out."""

    def __init__(self, lines: Sequence[str], seed: int = 0) -> None:
        """`lines` has at least one."""
        super().__init__(seed)
        self._lines = list(lines)

    async def act(self, observation: Observation) -> Message:
        line = self._lines[0] if len(self._lines) == 1 else self._lines.pop(0)
        return Message("assistant", line)


@dataclass
class Played:
    """How an episode went."""

    reward: float = 0.0
    """Sum over steps, and the score."""
    turns: int = 0
    terminated: bool = False
    truncated: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    """All that the agent saw and said, in order."""
    tools: tuple[Tool, ...] = ()
    """Those it was offered first."""


async def play(
    environment: Environment, scenario: Scenario, agent: Agent, *, seed: int = 0, max_turns: int
) -> Played:
    """Plays one episode in this process and closes the environment.

    Raises whatever the environment or the agent raises.
    """
    played = Played()
    try:
        observation = await environment.reset(scenario, seed)
        played.tools = tuple(observation.tools)
        played.messages.extend(observation.messages)
        while played.turns < max_turns and not (played.terminated or played.truncated):
            action = await agent.act(observation)
            result = await environment.step(action)
            played.messages += [action, *result.observation.messages]
            played.turns += 1
            played.reward += result.reward
            played.terminated, played.truncated = result.terminated, result.truncated
            played.metrics.update(result.metrics)
            played.info, observation = dict(result.info), result.observation
        score = await environment.score()
        played.reward += score.reward
        played.metrics.update(score.metrics)
        played.info.update(score.info)
    finally:
        await environment.close()
    return played
