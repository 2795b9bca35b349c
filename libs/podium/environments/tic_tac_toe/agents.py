"""Agents that play tic-tac-toe without a model; one of them is the opponent."""

from __future__ import annotations

import random

from podium.environments.agent import Agent
from podium.environments.tic_tac_toe.rules import best_cells, free_cells
from podium.environments.types import Message, Observation, assistant


class Player(Agent):
    """A perfect player but for a share of random moves."""

    def __init__(self, seed: int = 0, mistakes: float = 0.0) -> None:
        """`mistakes` in [0, 1] is the share of moves drawn from all free cells.

        The others are drawn from the cells that are best.
        """
        super().__init__(seed)
        self._rng = random.Random(seed)
        self._mistakes = mistakes

    def choose(self, board: str) -> int:
        """A cell, from 0, for the one whose turn it is."""
        careless = self._rng.random() < self._mistakes
        return self._rng.choice(free_cells(board) if careless else best_cells(board))

    async def act(self, observation: Observation) -> Message:
        return assistant(str(self.choose(observation.state["board"]) + 1))


def perfect(seed: int) -> Player:
    """Never loses."""
    return Player(seed)


def careless(seed: int) -> Player:
    """Takes any free cell."""
    return Player(seed, mistakes=1.0)
