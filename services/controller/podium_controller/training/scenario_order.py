"""Which scenario each group attempts: a pure function of seed and position.

The split is shuffled anew each epoch and drawn without replacement, so a
resumed job goes on exactly where it was without anything being stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence

from podium.types.v1 import trajectory_pb2


class ScenarioOrder:
    """The order in which a job meets the scenarios of its split."""

    def __init__(self, scenarios: Sequence[trajectory_pb2.Scenario], seed: int | str) -> None:
        """`scenarios` must not be empty; their order does not matter, their ids do."""
        self._scenarios = {scenario.id: scenario for scenario in scenarios}
        self._seed = seed
        self._epoch = -1
        self._order: list[str] = []

    async def listed(self) -> None:
        """Returns when the scenarios are known, as they are here."""

    def at(self, position: int) -> trajectory_pb2.Scenario:
        """The scenario of the order's group `position`, from 0."""
        epoch, place = divmod(position, len(self._scenarios))
        if epoch != self._epoch:
            self._order = sorted(self._scenarios, key=lambda id_: self._rank(epoch, id_))
            self._epoch = epoch
        return self._scenarios[self._order[place]]

    def _rank(self, epoch: int, scenario_id: str) -> bytes:
        # A hash and not `random.shuffle`, whose order may differ between Python versions.
        return hashlib.sha256(f"{self._seed}/{epoch}/{scenario_id}".encode()).digest()


class LateScenarioOrder(ScenarioOrder):
    """The same of an environment that was away when they were asked for, and is asked again."""

    def __init__(
        self, asked: Callable[[], Awaitable[Sequence[trajectory_pb2.Scenario]]], seed: int | str
    ) -> None:
        """`asked` gives the scenarios, of which there are some."""
        super().__init__([], seed)
        self._asked = asked

    async def listed(self) -> None:
        """Asks, where nobody has yet; raises what that raises."""
        if not self._scenarios:
            self._scenarios = {scenario.id: scenario for scenario in await self._asked()}
