"""What acts in an environment without a model."""

from __future__ import annotations

from abc import ABC, abstractmethod

from podium.environments.types import Message, Observation


class Agent(ABC):
    """Plays one episode: an instance is made for each, with the episode's seed.

    It sees what a model would, and `Observation.state`, which holds the same as data.
    """

    def __init__(self, seed: int = 0) -> None:
        """All randomness must come from `seed`."""
        self.seed = seed

    @abstractmethod
    async def act(self, observation: Observation) -> Message:
        """The assistant's message after an observation."""
