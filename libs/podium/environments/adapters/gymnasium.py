"""Any environment of Gymnasium, played in text."""

from __future__ import annotations

import asyncio
import importlib
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from podium.core.errors import InvalidArgumentError, Violation
from podium.environments.adapters.gymnasium_spaces import Actions
from podium.environments.adapters.packages import needed
from podium.environments.adapters.seeds import seed_scenarios
from podium.environments.adapters.values import plain, shown
from podium.environments.agent import Agent
from podium.environments.base import Environment
from podium.environments.types import (
    Message,
    Observation,
    Scenario,
    Score,
    StepResult,
    system,
    user,
)

T = TypeVar("T")

REQUIREMENT = "gymnasium>=1.4"

_ON_COLOUR = re.compile(r"\x1b\[4\dm(.*?)\x1b\[0m", re.DOTALL)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Config(BaseModel):
    """Options of the environment."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(min_length=1, max_length=256)
    """As `gymnasium.make` takes it, `FrozenLake-v1` or `package.module:MyEnv-v0`."""
    kwargs: dict[str, Any] = {}
    """Further arguments of `gymnasium.make`."""
    reset_options: dict[str, Any] = {}
    """`options` of every reset."""
    train: int = Field(default=1000, ge=1, le=100_000)
    """Scenarios to train on; each is a seed."""
    heldout: int = Field(default=100, ge=1, le=100_000)
    """Scenarios held out, of other seeds."""
    prompt: str = ""
    """What the task is; the environment's id without it."""
    actions: list[str] = []
    """Names of a discrete space's actions, in order; numbers without them."""
    render: bool = False
    """Show what `render()` draws as text (`render_mode="ansi"`) and not the observation."""
    invalid: Literal["retry", "random", "end"] = "retry"
    """After an answer without an action: ask again without a step, take a random one, or end."""
    invalid_reward: float = Field(default=-0.1, allow_inf_nan=False)
    """Reward of such an answer, beside that of a random action."""
    success_above: float | None = None
    """Sum of the environment's own rewards above which an episode is a success; else none is."""


class Random(Agent):
    """Takes a random action each turn."""

    async def act(self, observation: Observation) -> Message:
        return Message("assistant", observation.state["random_action"])


class Gymnasium(Environment):
    """One episode of an environment of Gymnasium.

    Rewards, terminated and truncated are the environment's own, kept apart.
    Metrics: `return`, the sum of its rewards; `steps`; `invalid_actions`; and
    `success`, where `success_above` says what that is.
    """

    name: ClassVar[str] = "gymnasium"
    description: ClassVar[str] = "Any environment of Gymnasium, played in text."
    Config: ClassVar[type[BaseModel]] = Config
    baselines: ClassVar[Mapping[str, Callable[[int], Agent]]] = {"random": Random}

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        """Checks the options; makes nothing yet.

        Raises:
            InvalidArgumentError: naming each wrong option.
            FailedPreconditionError: the package gymnasium is not installed.
        """
        super().__init__(config)
        self._gymnasium = needed("gymnasium", REQUIREMENT, self.name)
        module, _, name = self.config.id.rpartition(":")
        try:
            # As gymnasium.make does, and its spec does not; a user's module may raise anything.
            if module:
                importlib.import_module(module)
            self._gymnasium.spec(name)
        except (Exception, SystemExit) as error:
            raise _wrong("id", f"got {self.config.id!r}: {error}") from error
        self._env: Any = None
        # A step that was cut goes on in its thread; whatever comes next waits for it.
        self._one_at_a_time = threading.Lock()

    def scenarios(self, split: str) -> Sequence[Scenario]:
        count = self.config.train if split == "train" else self.config.heldout
        return seed_scenarios(split, count)

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        start = scenario.data.get("seed")
        if not isinstance(start, int) or isinstance(start, bool) or start < 0:
            raise InvalidArgumentError(
                violations=[
                    Violation("scenario.data.seed", f"got {start!r}; allowed are numbers from 0 up")
                ]
            )
        self._seed = seed
        self._return = 0.0
        self._turns = self._steps = self._invalid = 0
        first = await self._aside(lambda: self._begin(start))
        question = self.config.prompt or f"You act in {self.config.id}."
        rules = f"{question}\n{self._actions.described} Answer with <action>your action</action>."
        return Observation([system(rules), user(self._text(first))], state=self._state(first))

    async def step(self, action: Message) -> StepResult:
        self._turns += 1
        reward, note = 0.0, ""
        try:
            chosen = self._actions.parse(action.content)
        except ValueError as error:
            self._invalid += 1
            reward = self.config.invalid_reward
            if self.config.invalid != "random":
                ended = self.config.invalid == "end"
                messages = [] if ended else [user(str(error))]
                state = self._state(self._seen)
                return self._result(Observation(messages, state=state), reward, ended, False, {})
            chosen = self._actions.parse(self._random())
            note = f"{error} {self._actions.written(chosen)} was taken.\n"
        seen, earned, terminated, truncated, info = await self._aside(
            lambda: self._env.step(chosen)
        )
        self._steps += 1
        self._return += float(earned)
        over = terminated or truncated
        text = "" if over else note + await self._aside(lambda: self._text(seen))
        observation = Observation([] if over else [user(text)], state=self._state(seen))
        return self._result(
            observation, reward + float(earned), bool(terminated), bool(truncated), info
        )

    async def score(self) -> Score:
        return Score(metrics=self._metrics())

    async def close(self) -> None:
        await self._aside(self._end)

    def _begin(self, seed: int) -> Any:
        arguments = dict(self.config.kwargs)
        if self.config.render:
            arguments["render_mode"] = "ansi"
        try:
            self._env = self._gymnasium.make(self.config.id, **arguments)
        except (TypeError, ValueError, self._gymnasium.error.Error) as error:
            raise _wrong("kwargs", f"{self.config.id}: {error}") from error
        self._actions = Actions(self._env.action_space, self.config.actions)
        self._seen, _ = self._env.reset(seed=seed, options=self.config.reset_options or None)
        return self._seen

    def _end(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None

    async def _aside(self, call: Callable[[], T]) -> T:
        def alone() -> T:
            with self._one_at_a_time:
                return call()

        return await asyncio.to_thread(alone)

    def _text(self, seen: Any) -> str:
        return _uncoloured(str(self._env.render())) if self.config.render else shown(seen)

    def _random(self) -> str:
        return self._actions.sample((self._seed + self._turns) % 2**32)

    def _state(self, seen: Any) -> dict[str, Any]:
        self._seen = seen
        return {"observation": plain(seen), "random_action": self._random()}

    def _result(
        self,
        observation: Observation,
        reward: float,
        ended: bool,
        cut: bool,
        info: Mapping[str, Any],
    ) -> StepResult:
        return StepResult(observation, reward, ended, cut, self._metrics(), plain(info))

    def _metrics(self) -> dict[str, float]:
        found = {
            "return": self._return,
            "steps": float(self._steps),
            "invalid_actions": float(self._invalid),
        }
        if self.config.success_above is not None:
            found["success"] = float(self._return > self.config.success_above)
        return found


def _uncoloured(drawn: str) -> str:
    """Terminal colours out; what stands on a coloured ground in brackets, as it is meant."""
    return _COLOUR.sub("", _ON_COLOUR.sub(r"[\1]", drawn)).strip("\n")


def _wrong(field: str, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(violations=[Violation(f"environment.config.{field}", why)])
