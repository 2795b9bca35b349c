"""One checked episode of an environment of ours: what user code returns is not believed."""

from __future__ import annotations

import math
from typing import Any

from podium.core.errors import FailedPreconditionError
from podium.environment.v1 import environment_service_pb2 as pb
from podium.environments.base import Environment
from podium.environments.convert import (
    message_from_pb,
    observation_to_pb,
    scenario_from_pb,
    struct,
)
from podium.environments.types import Observation, StepResult
from podium.types.v1 import trajectory_pb2 as types_pb


class LocalSession:
    """An episode in this process.

    Methods raise whatever the environment raises, FailedPreconditionError for
    a call out of order, and ValueError or TypeError for a result that breaks
    the contract: a reward that is not finite, a state that is not JSON.
    """

    def __init__(self, environment: Environment) -> None:
        """Takes over a fresh instance."""
        self._environment = environment
        self._state = "new"

    async def reset(self, scenario: types_pb.Scenario, seed: int) -> pb.Observation:
        """Begins the episode."""
        if self._state != "new":
            raise FailedPreconditionError("reset was called before", reason="ALREADY_RESET")
        observation = await self._environment.reset(scenario_from_pb(scenario), seed)
        _expect(observation, Observation, "reset")
        result = observation_to_pb(observation)
        self._state = "running"
        return result

    async def step(self, action: types_pb.Message) -> pb.StepResponse:
        """Takes an action."""
        if self._state != "running":
            what = "before reset" if self._state == "new" else "after the end of the episode"
            raise FailedPreconditionError(f"step {what}", reason="NO_RUNNING_EPISODE")
        result = await self._environment.step(message_from_pb(action))
        _expect(result, StepResult, "step")
        reward = float(result.reward)
        if not math.isfinite(reward):
            raise ValueError(f"reward is {reward}; allowed are finite numbers")
        metrics = {name: float(value) for name, value in result.metrics.items()}
        for name, value in metrics.items():
            if not math.isfinite(value):
                raise ValueError(f"metric {name!r} is {value}; allowed are finite numbers")
        response = pb.StepResponse(
            observation=observation_to_pb(result.observation),
            reward=reward,
            terminated=bool(result.terminated),
            truncated=bool(result.truncated),
            metrics=metrics,
            info=struct(result.info),
        )
        if response.terminated or response.truncated:
            self._state = "ended"
        return response

    async def close(self) -> None:
        """Closes the environment; once."""
        if self._state != "closed":
            self._state = "closed"
            await self._environment.close()


def _expect(value: Any, kind: type, method: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{method} returned {type(value).__name__}, not {kind.__name__}")
