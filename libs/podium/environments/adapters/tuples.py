"""Classes whose `step` gives `(state, reward, done, info)`, as they are."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from podium.core.errors import InvalidArgumentError, Violation
from podium.environments.adapters.values import plain, shown
from podium.environments.base import Environment
from podium.environments.types import Message, Observation, Scenario, StepResult, user

SUCCESS_REWARD = 0.5
_SCENARIOS = 100

Prompt = Callable[[Any], str]
ReadAction = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Adapted:
    """What `from_tuples` was given."""

    kind: type
    prompt: Prompt
    action: ReadAction
    scenarios: Mapping[str, Sequence[Scenario]]


def from_tuples(
    kind: type,
    *,
    prompt: Prompt = shown,
    action: ReadAction = lambda reply, state: reply.strip(),
    scenarios: Mapping[str, Sequence[Scenario]] | None = None,
    name: str = "",
) -> type[Environment]:
    """An environment that plays `kind`, a class with `reset()` and `step(action)`.

    Both may be coroutines; those that are not run in a thread. `reset` returns
    the state and is given the `seed` if it has a parameter of that name, `step`
    returns state, reward, done and info. The metric `success` is 1 for an
    episode that is done with a last reward above 0.5.

    Args:
        prompt: what the model reads of a state; without one the state as JSON.
        action: what `step` is given for the model's reply, and the state that
            the reply was to; without one the text.
        scenarios: by split; their `data` are the arguments of the class. Without
            them 100 a split that differ in their seeds alone.
        name: for people and job files; without one the class' own, or its name.
    """
    named = name or getattr(kind, "name", "")
    if not isinstance(named, str) or not named:
        named = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__).lower()
    if scenarios is None:
        scenarios = {
            split: [Scenario(f"{split}-{number}") for number in range(_SCENARIOS)]
            for split in Environment.splits
        }
    fields = {
        "name": named,
        "description": (inspect.getdoc(kind) or "").partition("\n")[0],
        "splits": tuple(scenarios),
        "adapted": Adapted(kind, prompt, action, dict(scenarios)),
    }
    return type(kind.__name__, (TupleEnvironment,), fields)


def has_tuples(kind: object) -> bool:
    """Whether it looks like a class for `from_tuples`."""
    methods = (getattr(kind, method, None) for method in ("reset", "step"))
    return isinstance(kind, type) and all(map(callable, methods))


class TupleEnvironment(Environment):
    """What `from_tuples` makes subclasses of."""

    adapted: ClassVar[Adapted]
    _inner: Any = None

    def scenarios(self, split: str) -> Sequence[Scenario]:
        return [replace(each, split=split) for each in self.adapted.scenarios[split]]

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        kind = self.adapted.kind
        try:
            inspect.signature(kind).bind(**scenario.data)
        except TypeError as error:
            what = f"{kind.__name__} does not take it: {error}"
            raise InvalidArgumentError(violations=[Violation("scenario.data", what)]) from None
        self._inner = kind(**scenario.data)
        seeded = {"seed": seed} if "seed" in inspect.signature(self._inner.reset).parameters else {}
        self._state = await _called(self._inner.reset, **seeded)
        return self._observation(ended=False)

    async def step(self, action: Message) -> StepResult:
        result = await _called(self._inner.step, self.adapted.action(action.content, self._state))
        if not isinstance(result, tuple) or len(result) != 4:
            what = type(result).__name__
            if isinstance(result, tuple):
                what = f"a tuple of {len(result)}"
            raise TypeError(f"step returned {what}; allowed is (state, reward, done, info)")
        self._state = result[0]
        reward, done = _number(result[1]), plain(result[2])
        if not isinstance(done, bool):
            raise TypeError(f"step returned done={done!r}; allowed are True and False")
        return StepResult(
            self._observation(ended=done),
            reward=reward,
            terminated=done,
            metrics={"success": float(done and reward > SUCCESS_REWARD)},
            info=_mapping(result[3], "info"),
        )

    async def close(self) -> None:
        close = getattr(self._inner, "close", None)
        if callable(close):
            await _called(close)

    def _observation(self, *, ended: bool) -> Observation:
        messages = [] if ended else [user(self.adapted.prompt(self._state))]
        return Observation(messages, state=_mapping(self._state, "state"))


async def _called(method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    if inspect.iscoroutinefunction(method):
        return await method(*arguments, **named)
    # It may block, and other episodes run here.
    result = await asyncio.to_thread(method, *arguments, **named)
    return await result if inspect.isawaitable(result) else result


def _number(reward: Any) -> float:
    value = plain(reward)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"step returned reward={value!r}; allowed are finite numbers")
    return float(value)


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    values = plain({} if value is None else value)
    return values if isinstance(values, dict) else {name: values}
