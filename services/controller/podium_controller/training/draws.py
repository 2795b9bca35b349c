"""Which groups a job has drawn that trains them as they become ready.

Groups are numbered as they are drawn, and of each environment the scenarios come in their order:
every one is attempted equally often over an epoch. What is kept with each step that takes groups
is enough to draw the same ones again after a crash: the next number, and which before it no step
has taken yet.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from podium_controller.training.mixture import Mixture


@dataclass(frozen=True)
class Draw:
    """A group to attempt."""

    number: int
    """Of all that the job draws, from 0."""
    source: int
    """Which environment."""
    position: int
    """In the order of its scenarios."""


class Draws:
    """Draws one job's groups."""

    def __init__(self, mixture: Mixture, groups_per_step: int, completed: int) -> None:
        """Begins after `completed` steps of `groups_per_step` groups each."""
        self._mixture = mixture
        self._next = completed * groups_per_step
        self._counts = list(mixture.before(completed + 1))
        self._open: dict[int, Draw] = {}

    @classmethod
    def restored(cls, mixture: Mixture, state: str) -> Draws:
        """As they were when they gave `state`."""
        made = cls(mixture, 0, 0)
        kept = json.loads(state)
        made._next, made._counts = kept["next"], kept["counts"]
        made._open = {each[0]: Draw(*each) for each in kept["open"]}
        return made

    @property
    def state(self) -> str:
        """What to keep of them."""
        kept = [[each.number, each.source, each.position] for each in self._open.values()]
        return json.dumps({"next": self._next, "counts": self._counts, "open": kept})

    @property
    def open(self) -> list[Draw]:
        """Those that no step has taken, by number."""
        return sorted(self._open.values(), key=lambda each: each.number)

    def draw(self, step: int) -> Draw:
        """One more, while `step` is the next that takes groups."""
        source = self._mixture.pick(step, self._next)
        made = Draw(self._next, source, self._counts[source])
        self._counts[source] += 1
        self._next += 1
        self._open[made.number] = made
        return made

    def draw_through(self, step: int, stored: Collection[int]) -> None:
        """Draws again what was drawn since the last step took groups, as far as it is stored."""
        while stored and self._next <= max(stored):
            self.draw(step)

    def settle(self, numbers: Iterable[int]) -> None:
        """Groups that a step has taken, or that are given up."""
        for number in numbers:
            self._open.pop(number, None)
