"""Agents that need no model."""

from __future__ import annotations

from podium.environments.agent import Agent
from podium.environments.coding.scenarios import tasks
from podium.environments.types import Message, Observation


class Reference(Agent):
    """Submits the known solution of a built-in task."""

    async def act(self, observation: Observation) -> Message:
        name = observation.state["function"]
        (source,) = [
            task.source for split in tasks().values() for task in split if task.name == name
        ]
        return Message("assistant", f"```python\n{source}```")


class Empty(Agent):
    """Submits a function that does nothing."""

    async def act(self, observation: Observation) -> Message:
        name = observation.state["function"]
        return Message("assistant", f"```python\ndef {name}(*arguments):\n    pass\n```")
