"""Agents that play 2048 without a model."""

from __future__ import annotations

import asyncio
import random

from podium.environments.agent import Agent
from podium.environments.game_2048.board import Board, Move, available_moves, empty_cells, push
from podium.environments.game_2048.expectimax import Expectimax
from podium.environments.types import Message, Observation, assistant


class RandomAgent(Agent):
    """Any legal move."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._rng = random.Random(seed)

    async def act(self, observation: Observation) -> Message:
        return assistant(self._rng.choice(observation.state["available_moves"]))


class GreedyAgent(Agent):
    """The move that merges most; of equals the one that leaves most cells empty."""

    async def act(self, observation: Observation) -> Message:
        board = _board(observation)
        board = _board(observation)

        def worth(move: Move) -> tuple[int, int]:
            after, gained = push(board, move)
            return gained, len(empty_cells(after))

        return assistant(max(available_moves(board), key=worth))


class ExpectimaxAgent(Agent):
    """The best move by expectimax (S40); the tutorial calls the strategy "minimax"."""

    def __init__(self, seed: int = 0, depth: int = 3) -> None:
        """It draws nothing at random: `seed` changes nothing."""
        super().__init__(seed)
        self._depth = depth
        self._search = Expectimax(depth)

    async def act(self, observation: Observation) -> Message:
        board = _board(observation)
        if self._depth < 3:
            # A few milliseconds: handing them to a thread can take longer.
            return assistant(self._search.choose(board).move)
        choice = await asyncio.to_thread(self._search.choose, board)
        return assistant(choice.move)


def _board(observation: Observation) -> Board:
    return tuple(tuple(row) for row in observation.state["board"])
