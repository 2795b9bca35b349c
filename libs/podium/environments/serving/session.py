"""One checked episode of an environment of ours: what user code returns is not believed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from podium.core.contract.text import shown
from podium.core.errors import FailedPreconditionError
from podium.core.outside import clean
from podium.environment.v1 import environment_service_pb2 as pb
from podium.environments.base import Environment
from podium.environments.serving.convert import (
    ToolsOnOffer,
    message_from_pb,
    observation_to_pb,
    scenario_from_pb,
    struct,
)
from podium.environments.types import Observation, Score, StepResult
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
        self._tools = ToolsOnOffer()

    async def reset(self, scenario: types_pb.Scenario, seed: int) -> pb.Observation:
        """Begins the episode."""
        if self._state != "new":
            raise FailedPreconditionError("reset was called before", reason="ALREADY_RESET")
        observation = await self._environment.reset(scenario_from_pb(scenario), seed)
        _expect(observation, Observation, "reset")
        result = observation_to_pb(observation, self._tools)
        self._state = "running"
        return result

    async def step(self, action: types_pb.Message) -> pb.StepResponse:
        """Takes an action."""
        if self._state != "running":
            raise _out_of_order("step", self._state)
        result = await self._environment.step(message_from_pb(action))
        _expect(result, StepResult, "step")
        response = pb.StepResponse(
            observation=observation_to_pb(result.observation, self._tools),
            reward=_finite("reward", result.reward),
            terminated=bool(result.terminated),
            truncated=bool(result.truncated),
            metrics=_numbers("metric", result.metrics),
            info=struct(result.info),
            side_rewards=_numbers("reward of side", result.side_rewards),
        )
        if response.terminated or response.truncated:
            self._state = "ended"
        return response

    async def score(self) -> pb.ScoreResponse:
        """Settles the reward; once, after which no step is taken."""
        if self._state not in ("running", "ended"):
            raise _out_of_order("score", self._state)
        self._state = "scored"
        result = await self._environment.score()
        _expect(result, Score, "score")
        return pb.ScoreResponse(
            reward=_finite("reward", result.reward),
            metrics=_numbers("metric", result.metrics),
            info=struct(result.info),
            side_rewards=_numbers("reward of side", result.side_rewards),
        )

    async def close(self) -> None:
        """Closes the environment; once."""
        if self._state != "closed":
            self._state = "closed"
            await self._environment.close()


def _out_of_order(what: str, state: str) -> FailedPreconditionError:
    if state == "new":
        return FailedPreconditionError(f"{what} before reset", reason="NO_RUNNING_EPISODE")
    return FailedPreconditionError(
        f"{what} after the end of the episode", reason="NO_RUNNING_EPISODE"
    )


def _finite(what: str, value: float, name: str | None = None) -> float:
    of = "" if name is None else f" {name!r}"
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError):
        text = f"{what}{of} is {shown(value)}; allowed are finite numbers"
        raise ValueError(text) from None
    if not math.isfinite(number):
        raise ValueError(f"{what}{of} is {number}; allowed are finite numbers")
    return number


def _numbers(what: str, values: Mapping[str, float]) -> dict[str, float]:
    if not isinstance(values, Mapping):
        raise TypeError(f"{what}s are {shown(values)}; allowed is a dict of names to numbers")
    if wrong := next((name for name in values if not isinstance(name, str)), None):
        raise TypeError(f"{what} {shown(wrong)} has a name that is no text")
    return {clean(name): _finite(what, value, name) for name, value in values.items()}


def _expect(value: Any, kind: type, method: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{method} returned {type(value).__name__}, not {kind.__name__}")
