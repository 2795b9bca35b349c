"""Any server of OpenEnv, over its WebSocket sessions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from podium.core.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
    Violation,
)
from podium.core.proxies import proxy_of
from podium.environments.adapters.packages import needed
from podium.environments.adapters.seeds import seed_scenarios
from podium.environments.adapters.values import plain, shown
from podium.environments.base import Environment
from podium.environments.types import (
    Message,
    Observation,
    Scenario,
    Score,
    StepResult,
    Tool,
    system,
    tool_result,
    user,
)

REQUIREMENT = "websockets>=15"
TOOL = "act"

_BLOCK = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)
_CONNECT_SECONDS = 10.0
_LARGEST_MESSAGE = 64 * 1024 * 1024
_ACTION_REFUSED = ("VALIDATION_ERROR", "INVALID_JSON")


class Config(BaseModel):
    """Options of the environment."""

    model_config = ConfigDict(extra="forbid")

    url: str
    """Of the server: `http://host:8000`, or https, ws, wss."""
    train: int | list[dict[str, Any]] = 1000
    """Scenarios to train on: the parameters of each reset, or a number of seeds."""
    heldout: int | list[dict[str, Any]] = 100
    """Scenarios held out: likewise."""
    prompt: str = ""
    """What the task is and how to answer; nothing is said without it."""
    action_field: str = ""
    """Field of the action that takes the whole answer; without it the answer is the action as
    JSON, alone or in its last code block."""
    action_defaults: dict[str, Any] = {}
    """Further fields of every action."""
    tool_schema: dict[str, Any] = {}
    """JSON Schema of an action; given, the action is a call of the tool `act`."""
    observation_field: str = ""
    """Field of the observation that the agent reads; all of it as JSON without."""
    invalid: Literal["retry", "end"] = "retry"
    """After an answer that is no action: ask again without a step, or end."""
    invalid_reward: float = Field(default=-0.1, allow_inf_nan=False)
    """Reward of such an answer."""

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        parts = urlsplit(url)
        is_known = parts.scheme in ("http", "https", "ws", "wss")
        # To read a port that is none is a ValueError.
        if not is_known or not parts.hostname or parts.port == 0:
            raise ValueError("not a URL such as http://host:8000")
        return url

    @field_validator("train", "heldout")
    @classmethod
    def _has_some(cls, scenarios: int | list[dict[str, Any]]) -> int | list[dict[str, Any]]:
        if not scenarios or (isinstance(scenarios, int) and not 0 < scenarios <= 100_000):
            raise ValueError("allowed are 1 to 100000, or a list of reset parameters")
        return scenarios


class OpenEnv(Environment):
    """One session of an OpenEnv server.

    Rewards and the end are the server's. It has one word for both ways to end:
    an episode counts as truncated when the metadata of the last observation
    say `truncated`, else as terminated. Metrics: `steps`, `invalid_actions`.
    `info.state` is the server's state at the end.
    """

    name: ClassVar[str] = "openenv"
    description: ClassVar[str] = "Any OpenEnv server, over its WebSocket sessions."
    Config: ClassVar[type[BaseModel]] = Config

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        """Checks the options; connects to nothing yet.

        Raises:
            InvalidArgumentError: naming each wrong option.
            FailedPreconditionError: the package websockets is not installed.
        """
        super().__init__(config)
        self._websockets = needed("websockets.asyncio.client", REQUIREMENT, self.name)
        self._errors = needed("websockets.exceptions", REQUIREMENT, self.name)
        self._socket: Any = None
        self._awaited = 0

    def scenarios(self, split: str) -> Sequence[Scenario]:
        chosen = self.config.train if split == "train" else self.config.heldout
        if isinstance(chosen, list):
            return [Scenario(f"{split}-{n}", given) for n, given in enumerate(chosen)]
        return seed_scenarios(split, chosen)

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        self._steps = self._invalid = 0
        await self._connect()
        # Of a scenario without a seed of its own all attempts get the group's.
        given = {"seed": seed % 2**31, **scenario.data}
        result = await self._ask("reset", given)
        messages = [system(self.config.prompt)] if self.config.prompt else []
        seen = result.get("observation")
        return Observation([*messages, user(self._text(seen))], self._tools(), _state(seen))

    async def step(self, action: Message) -> StepResult:
        try:
            result = await self._ask("step", self._action(action))
        except _RefusedActionError as error:
            self._invalid += 1
            ended = self.config.invalid == "end"
            answer = [] if ended else self._answer(action, str(error))
            return StepResult(
                Observation(answer, self._tools()),
                self.config.invalid_reward,
                terminated=ended,
                metrics=self._metrics(),
            )
        self._steps += 1
        seen, metadata = result.get("observation"), plain(result.get("metadata") or {})
        done = bool(result.get("done"))
        cut = done and bool(metadata.get("truncated") or metadata.get("TimeLimit.truncated"))
        messages = [] if done else self._answer(action, self._text(seen))
        return StepResult(
            Observation(messages, self._tools(), _state(seen)),
            float(result.get("reward") or 0.0),
            terminated=done and not cut,
            truncated=cut,
            metrics=self._metrics(),
            info={"metadata": metadata},
        )

    async def score(self) -> Score:
        return Score(metrics=self._metrics(), info={"state": plain(await self._ask("state", None))})

    async def close(self) -> None:
        if self._socket is not None:
            socket, self._socket = self._socket, None
            with suppress(self._errors.ConnectionClosed):
                await socket.send(json.dumps({"type": "close"}))
            await socket.close()

    async def _connect(self) -> None:
        base = re.sub(r"^http", "ws", self.config.url.rstrip("/"))
        proxy = self._proxy()
        try:
            self._socket = await self._websockets.connect(
                base if base.endswith("/ws") else f"{base}/ws",
                open_timeout=_CONNECT_SECONDS,
                max_size=_LARGEST_MESSAGE,
                proxy=proxy or None,
            )
        except (ValueError, self._errors.InvalidProxy):
            if not proxy:
                raise
            # Neither whole nor as the cause: it may hold a password.
            raise UnavailableError(
                f"the OpenEnv server at {self.config.url} cannot be reached by the environment's"
                f" proxy, {proxy.partition('://')[0]}://…: it is none that can be used"
            ) from None
        # ImportError: what a proxy of SOCKS takes is not installed.
        except (OSError, TimeoutError, ImportError, self._errors.WebSocketException) as error:
            raise UnavailableError(
                f"the OpenEnv server at {self.config.url} cannot be reached: {error}"
            ) from error

    def _proxy(self) -> str:
        parts = urlsplit(self.config.url)
        secure = parts.scheme in ("https", "wss")
        return proxy_of("https" if secure else "http", parts.hostname or "", parts.port)

    async def _ask(self, kind: str, data: Mapping[str, Any] | None) -> dict[str, Any]:
        message = {"type": kind} if data is None else {"type": kind, "data": dict(data)}
        try:
            # A server without room says so before it hangs up, and is not written to any more.
            with suppress(self._errors.ConnectionClosed):
                await self._socket.send(json.dumps(message))
            self._awaited += 1
            # What was asked before and cut is answered first.
            while self._awaited:
                answer = json.loads(await self._socket.recv())
                self._awaited -= 1
        except self._errors.ConnectionClosed as error:
            raise UnavailableError(
                f"the OpenEnv server at {self.config.url} ended the session"
            ) from error
        found = answer.get("data") or {}
        if answer.get("type") == "error":
            raise _failure(kind, found)
        return dict(found)

    def _action(self, action: Message) -> dict[str, Any]:
        if self.config.tool_schema:
            if not action.tool_calls:
                raise _RefusedActionError(f"call the tool {TOOL}")
            text = action.tool_calls[0].arguments_json
        elif self.config.action_field:
            return {**self.config.action_defaults, self.config.action_field: action.content}
        else:
            blocks = _BLOCK.findall(action.content)
            text = blocks[-1] if blocks else action.content
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            raise _RefusedActionError("the action is no JSON") from None
        if not isinstance(given, dict):
            raise _RefusedActionError("the action is no JSON object")
        return {**self.config.action_defaults, **given}

    def _answer(self, action: Message, text: str) -> list[Message]:
        if not (self.config.tool_schema and action.tool_calls):
            return [user(text)]
        first, *others = action.tool_calls
        ignored = "only the first call of a turn is made"
        return [tool_result(first, text), *(tool_result(call, ignored) for call in others)]

    def _tools(self) -> list[Tool]:
        schema = self.config.tool_schema
        return [Tool(TOOL, "Acts in the environment.", schema)] if schema else []

    def _text(self, seen: Any) -> str:
        field = self.config.observation_field
        if not field:
            return shown(seen)
        if not isinstance(seen, dict) or field not in seen:
            raise InvalidArgumentError(
                violations=[
                    Violation(
                        "environment.config.observation_field",
                        f"got {field!r}; an observation here has {', '.join(seen or {})}",
                    )
                ]
            )
        return shown(seen[field])

    def _metrics(self) -> dict[str, float]:
        return {"steps": float(self._steps), "invalid_actions": float(self._invalid)}


class _RefusedActionError(Exception):
    """The answer is no action of this environment."""


def _state(seen: Any) -> dict[str, Any]:
    return {"observation": plain(seen)}


def _failure(kind: str, answer: Mapping[str, Any]) -> Exception:
    code, message = str(answer.get("code", "")), str(answer.get("message", ""))
    if code in _ACTION_REFUSED:
        wrong = [
            f"{'.'.join(map(str, error.get('loc', ())))}: {error.get('msg', '')}"
            for error in answer.get("errors") or ()
        ]
        text = "; ".join([message, *wrong])
        if kind == "step":
            return _RefusedActionError(text)
        return InvalidArgumentError(violations=[Violation("scenario.data", text)])
    if code == "CAPACITY_REACHED":
        return ResourceExhaustedError(f"the OpenEnv server is full: {message}", reason="NO_SESSION")
    if code in ("FACTORY_ERROR", "SESSION_ERROR"):
        return FailedPreconditionError(f"the OpenEnv server made no session: {message}")
    return RuntimeError(f"{code}: {message}")
