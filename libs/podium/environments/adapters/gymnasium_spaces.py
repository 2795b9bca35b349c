"""Gymnasium's action spaces as text: told to a model, and read from what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from podium.core.errors import InvalidArgumentError, Violation
from podium.environments.adapters.values import plain, shown

_TAGGED = re.compile(r"<action>(.*?)</action>", re.DOTALL | re.IGNORECASE)
_NUMBER = re.compile(r"-?\d+")


class Actions:
    """The actions of one environment.

    Of a discrete space a name or a number, of any other the value as JSON.
    What stands in the last `<action>` tag counts, or without one the last name
    or number of the whole text.
    """

    def __init__(self, space: Any, names: Sequence[str] = ()) -> None:
        """`space` is a `gymnasium.spaces.Space`, `names` those of a discrete one, in order.

        Raises:
            InvalidArgumentError: another number of names than of actions.
        """
        self._space = space
        self._discrete = hasattr(space, "n") and hasattr(space, "start")
        count = int(space.n) if self._discrete else 0
        if names and len(names) != count:
            raise InvalidArgumentError(
                violations=[
                    Violation(
                        "environment.config.actions",
                        f"got {len(names)} names; the action space is {space}",
                    )
                ]
            )
        self._names = [name.lower() for name in names]
        self._first = int(space.start) if self._discrete else 0
        self._any_name = re.compile(
            r"(?<!\w)(?:"
            + "|".join(re.escape(n) for n in sorted(self._names, key=len, reverse=True))
            + r")(?!\w)"
        )

    @property
    def described(self) -> str:
        """What may be answered."""
        if self._names:
            return f"Actions: {', '.join(self._names)}."
        if self._discrete:
            return (
                f"Actions: whole numbers from {self._first} to {self._first + self._space.n - 1}."
            )
        return f"An action is JSON of the space {self._space}."

    def parse(self, text: str) -> Any:
        """The action in a text.

        Raises:
            ValueError: there is none; says what was looked for.
        """
        tagged = _TAGGED.findall(text)
        said = tagged[-1].strip() if tagged else text.strip()
        action = self._parse_discrete(said.lower()) if self._discrete else self._parse_value(said)
        if not self._space.contains(action):
            raise ValueError(f"{shown(action)} is no action. {self.described}")
        return action

    def written(self, action: Any) -> str:
        """An action as `parse` reads it."""
        if self._names:
            return self._names[int(action) - self._first]
        return json.dumps(plain(action))

    def sample(self, seed: int) -> str:
        """A random action, as text."""
        self._space.seed(seed)
        return self.written(self._space.sample())

    def _parse_discrete(self, said: str) -> Any:
        if self._names and (found := self._any_name.findall(said)):
            return self._space.dtype.type(self._first + self._names.index(found[-1]))
        if self._names or not (numbers := _NUMBER.findall(said)):
            raise ValueError(f"no action was found. {self.described}")
        if len(numbers[-1]) > 18:
            raise ValueError(f"{numbers[-1][:18]}... is no action. {self.described}")
        return self._space.dtype.type(int(numbers[-1]))

    def _parse_value(self, said: str) -> Any:
        import numpy as np

        if self._space.dtype is str:
            return said
        try:
            value = json.loads(said)
        except (ValueError, RecursionError):
            raise ValueError(f"no action was found. {self.described}") from None
        if self._space.shape is None or self._space.dtype is None:
            return tuple(value) if isinstance(value, list) else value
        try:
            return np.asarray(value, dtype=self._space.dtype)
        except (ValueError, TypeError, OverflowError):
            raise ValueError(f"{said[:200]} is no action. {self.described}") from None
