"""What a task is: a function that we know, its description, and the inputs to test it with."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

EXAMPLES = 2
"""Of a task's inputs so many are shown; the others are hidden."""

Solution = Callable[..., Any]


@dataclass(frozen=True)
class CodingTask:
    """`solution` is one right answer, and says what is expected for each of `inputs`."""

    level: int
    """1: one expression; 2: a loop or two steps; 3: several; 4: an algorithm."""
    text: str
    solution: Solution
    inputs: Sequence[Sequence[Any]]
    """Arguments of each test."""

    @property
    def name(self) -> str:
        """The function's name, which no other task of either split has."""
        return self.solution.__name__

    @cached_property
    def source(self) -> str:
        """The solution as a submission."""
        text = textwrap.dedent(inspect.getsource(self.solution))
        return text[text.index("def ") :]

    @property
    def signature(self) -> str:
        """The line that a submission begins with."""
        return self.source.splitlines()[0]

    @cached_property
    def cases(self) -> list[dict[str, Any]]:
        """Each input with its expected output, as JSON values."""
        return [{"input": list(given), "output": self._expected(given)} for given in self.inputs]

    def _expected(self, given: Sequence[Any]) -> Any:
        # Through text, so that no solution changes its input and a tuple is what JSON makes of it.
        return json.loads(json.dumps(self.solution(*json.loads(json.dumps(given)))))


@dataclass
class Tasks:
    """Collects the tasks of a split."""

    found: list[CodingTask] = field(default_factory=list)

    def add(
        self, level: int, text: str, inputs: Sequence[Sequence[Any]]
    ) -> Callable[[Solution], Solution]:
        """Decorates the solution."""

        def collect(solution: Solution) -> Solution:
            self.found.append(CodingTask(level, text, solution, inputs))
            return solution

        return collect
