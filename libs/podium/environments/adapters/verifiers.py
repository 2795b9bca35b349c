"""Any environment of verifiers, run by verifiers: its harness asks, and our steps are the model."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import lru_cache
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from podium.core.errors import FailedPreconditionError, InvalidArgumentError, Violation
from podium.environments.adapters.packages import needed
from podium.environments.adapters.verifiers_model import EpisodeModel, ModelServer
from podium.environments.base import Environment
from podium.environments.types import Message, Observation, Scenario, Score, StepResult

REQUIREMENT = "verifiers>=0.4,<0.5"
MODEL = "policy"
# A chat loop with the task's own tools, in a process of this machine; verifiers' own default is
# a shell in a cloud sandbox.
_AGENT = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
_NO_KEY = "PODIUM_NO_KEY"
_LONGEST_WHY = 500


class Config(BaseModel):
    """Options of the environment."""

    model_config = ConfigDict(extra="forbid")

    env: dict[str, Any]
    """verifiers' own `[env]` block: `{taskset: {id: …}, agent: {harness: …, runtime: …}}`. An
    agent that it does not name runs the `null` harness in a subprocess."""
    train: int = Field(default=1000, ge=1, le=100_000)
    """Most tasks to train on."""
    heldout: int = Field(default=100, ge=1, le=100_000)
    """Tasks held out: the first ones, once they are shuffled by a fixed seed."""


class Verifiers(Environment):
    """One episode of an environment of verifiers 0.4.

    The reward comes with the last step, and is the sum of the trace's rewards;
    an episode that was cut is scored by its task as it stands. Metrics are the
    trace's, and each reward by its name.
    """

    name: ClassVar[str] = "verifiers"
    description: ClassVar[str] = "Any environment of verifiers 0.4."
    Config: ClassVar[type[BaseModel]] = Config

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        """Checks the options; loads no task yet.

        Raises:
            InvalidArgumentError: naming each wrong option.
            FailedPreconditionError: the package verifiers is not installed.
        """
        super().__init__(config)
        needed("verifiers.v1", REQUIREMENT, self.name)
        self._key = json.dumps(self.config.env, sort_keys=True)
        try:
            _resolved(self._key)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise _wrong(f"got {self.config.env!r}: {error}{_age(self.config.env)}") from error
        self._stack = AsyncExitStack()
        self._run: asyncio.Task[Any] | None = None
        self._turns = 0
        self._ended = False

    def scenarios(self, split: str) -> Sequence[Scenario]:
        tasks = _tasks(self._key, self.config.train + self.config.heldout)
        if len(tasks) <= self.config.heldout:
            raise InvalidArgumentError(
                violations=[
                    Violation(
                        "environment.config.heldout",
                        f"got {self.config.heldout}; the taskset has {len(tasks)} tasks",
                    )
                ]
            )
        heldout = self.config.heldout
        chosen = tasks[heldout:] if split == "train" else tasks[:heldout]
        return [Scenario(f"task-{task['idx']}", task) for task in chosen]

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        vf = needed("verifiers.v1", REQUIREMENT, self.name)
        served = await self._stack.enter_async_context(_Lease(self._key))
        kind = type(served.env.taskset).task_type()
        try:
            data = kind.data_type().model_validate(dict(scenario.data))
        except ValueError as error:
            raise InvalidArgumentError(
                violations=[Violation("scenario.data", f"is no task of this taskset: {error}")]
            ) from error
        url, self._conversation = served.model.open()
        self._stack.callback(served.model.close, url)
        client = vf.EvalClientConfig(base_url=url, api_key_var=_NO_KEY)
        task = kind(data, served.env.config.taskset.task)
        context = vf.ModelContext(model=MODEL, client=client)
        self._run = asyncio.create_task(served.env.run_episode(task, context))
        first = await self._next(self._conversation, self._run)
        if first is None:
            self._finished(self._run)
            raise RuntimeError("the episode ended before the model was asked")
        return first

    async def step(self, action: Message) -> StepResult:
        assert self._run is not None
        self._turns += 1
        self._conversation.answer(action)
        observation = await self._next(self._conversation, self._run)
        if observation is not None:
            return StepResult(observation)
        self._ended = True
        score, cut = self._finished(self._run)
        return StepResult(
            Observation(),
            score.reward,
            terminated=not cut,
            truncated=cut,
            metrics=score.metrics,
            info=score.info,
        )

    async def score(self) -> Score:
        # Without a turn there is nothing that a task could score.
        if self._ended or self._run is None or not self._turns:
            return Score()
        self._conversation.cut()
        await asyncio.wait([self._run])
        return self._finished(self._run)[0]

    async def close(self) -> None:
        if self._run is not None and not self._run.done():
            self._run.cancel()
            await asyncio.wait([self._run])
        await self._stack.aclose()

    async def _next(self, conversation: EpisodeModel, run: asyncio.Task[Any]) -> Observation | None:
        """What the agent asks next; None when the episode has ended."""
        asked = asyncio.ensure_future(conversation.requests.get())
        try:
            await asyncio.wait({asked, run}, return_when=asyncio.FIRST_COMPLETED)
            return conversation.observe(asked.result()) if asked.done() else None
        finally:
            asked.cancel()

    def _finished(self, run: asyncio.Task[Any]) -> tuple[Score, bool]:
        """What it earned, and whether a limit of verifiers' own cut it."""
        episode = run.result()
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        if errors:
            raise RuntimeError(f"{errors[0].type}: {errors[0].message}")
        trace = next(t for t in episode.traces if t.id == self._conversation.session)
        named = {name: reward.score for name, reward in trace.rewards.items() if reward is not None}
        metrics = {
            name: float(value)
            for name, value in (named | dict(trace.metrics)).items()
            if value is not None
        }
        info = {"stop_condition": trace.stop_condition}
        return Score(float(trace.reward), metrics, info), bool(trace.is_truncated)


class _Served:
    """One environment of verifiers with what it serves, for all episodes of the same options."""

    def __init__(self, key: str) -> None:
        self.env = needed("verifiers.v1.utils.loaders", REQUIREMENT, "verifiers").load_environment(
            _resolved(key)
        )
        self.model = ModelServer()
        self.users = 0
        self._up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._done = asyncio.Event()
        # One task enters and leaves it, as some of what it serves demands.
        self._serving = asyncio.create_task(self._serve())

    async def ready(self) -> None:
        await asyncio.shield(self._up)

    async def stop(self) -> None:
        self._done.set()
        await asyncio.wait([self._serving])

    async def _serve(self) -> None:
        try:
            await self.model.start()
            async with self.env.serving():
                self._up.set_result(None)
                await self._done.wait()
        except Exception as error:
            if self._up.done():
                raise
            self._up.set_exception(error)
        finally:
            await self.model.stop()


class _Lease:
    """The use of a `_Served`: made for the first user, stopped after the last."""

    _live: ClassVar[dict[tuple[asyncio.AbstractEventLoop, str], _Served]] = {}

    def __init__(self, key: str) -> None:
        self._key = (asyncio.get_running_loop(), key)

    async def __aenter__(self) -> _Served:
        if self._key not in self._live:
            self._live[self._key] = _Served(self._key[1])
        served = self._live[self._key]
        served.users += 1
        try:
            await served.ready()
        except BaseException:
            await self._leave(served)
            raise
        self._served = served
        return served

    async def __aexit__(self, *_: object) -> None:
        await self._leave(self._served)

    async def _leave(self, served: _Served) -> None:
        served.users -= 1
        if not served.users:
            del self._live[self._key]
            await served.stop()


@lru_cache(maxsize=8)
def _resolved(key: str) -> Any:
    loaders = needed("verifiers.v1.utils.loaders", REQUIREMENT, "verifiers")
    env = json.loads(key)
    taskset = (env.get("taskset") or {}).get("id", "")
    if not taskset:
        raise ValueError("taskset.id is missing")
    kind = loaders.env_config_type(taskset, env.get("id", ""))
    agent = needed("verifiers.v1", REQUIREMENT, "verifiers").AgentConfig
    for name, field in kind.model_fields.items():
        # Environments of their own name their agents as they like.
        if isinstance(field.annotation, type) and issubclass(field.annotation, agent):
            env[name] = _AGENT | (env.get(name) or {})
    return kind.model_validate(env)


def _age(env: Mapping[str, Any]) -> str:
    """What is said of a package that was written for verifiers 0.1: most of PyPI's are."""
    taskset = env.get("taskset")
    module = sys.modules.get(str(taskset.get("id", ""))) if isinstance(taskset, Mapping) else None
    if module is None or not hasattr(module, "load_environment"):
        return ""
    return (
        f" {module.__name__} has load_environment, as packages for verifiers 0.1 have: 0.4 does"
        " not run them, but its rewards can go into a Taskset of your own"
    )


@lru_cache(maxsize=4)
def _tasks(key: str, most: int) -> list[dict[str, Any]]:
    """The tasks as data: all of them shuffled, of an endless taskset the first ones.

    Raises:
        FailedPreconditionError: TASKSET_FAILED: it cannot load them, whatever its reason.
    """
    loaders = needed("verifiers.v1.utils.loaders", REQUIREMENT, "verifiers")
    try:
        taskset = loaders.load_taskset(_resolved(key).taskset)
        chosen = taskset.shuffle(seed=0).take(most) if taskset.bounded else taskset.take(most)
        return [task.data.model_dump(mode="json", exclude_none=True) for task in chosen]
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise FailedPreconditionError(
            f"the taskset cannot load its tasks: {why[:_LONGEST_WHY]}", reason="TASKSET_FAILED"
        ) from error


def _wrong(why: str) -> InvalidArgumentError:
    return InvalidArgumentError(violations=[Violation("environment.config.env", why)])
