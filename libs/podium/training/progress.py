"""How many rollouts may fail, and a bar that shows how far they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from podium.training.bars import Bar, shown


class FailureBudget:
    """Counts what a gathering's rollouts come to, and says when too many have failed."""

    def __init__(self, max_exceptions: int | float = 0, total: int = 0) -> None:
        """`max_exceptions` between 0 and 1 is a share of all rollouts.

        Raises:
            ValueError: it is negative.
        """
        if max_exceptions < 0:
            raise ValueError(f"max_exceptions is {max_exceptions}; it must be 0 or more")
        self._max_exceptions = max_exceptions
        self._total = total
        self._known = total
        self._begun = 0
        self.exceptions = 0
        self.done = 0
        self.reward = 0.0
        self.bar: Bar | None = None

    def begin(self, count: int) -> None:
        """So many rollouts begin; those that were not known before add to the total."""
        self._begun += count
        self._total = max(self._known, self._begun)
        self._show()

    def succeeded(self, reward: float) -> None:
        """A rollout ended."""
        self.done += 1
        self.reward += reward
        self._show()

    def failed(self, error: Exception) -> None:
        """A rollout raised.

        Raises:
            Exception: the same, when that is one too many.
        """
        self.exceptions += 1
        self._show()
        share = isinstance(self._max_exceptions, float) and 0 < self._max_exceptions < 1
        allowed = self._max_exceptions * self._total if share else self._max_exceptions
        if self.exceptions > allowed:
            raise error

    def _show(self) -> None:
        if self.bar is not None:
            mean = self.reward / self.done if self.done else 0.0
            text = f"reward {mean:.3f}"
            if self.exceptions:
                text += f", {self.exceptions} failed"
            self.bar.show(self.done + self.exceptions, self._total, text)


_budget: ContextVar[FailureBudget | None] = ContextVar("podium_budget", default=None)


def budget() -> FailureBudget:
    """Of the gathering that this runs in; one that allows no exception outside of one."""
    return _budget.get() or FailureBudget()


@contextmanager
def entered(made: FailureBudget, description: str | None) -> Iterator[None]:
    """Rollouts in the block count against the budget; a bar is shown where one can be."""
    token = _budget.set(made)
    try:
        with shown(description) as bar:
            made.bar = bar
            yield
    finally:
        _budget.reset(token)
