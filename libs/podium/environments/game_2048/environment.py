"""The environment: a board, one word a turn."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Literal
from zlib import crc32

from pydantic import BaseModel, ConfigDict, Field, field_validator

from podium.core.errors import InvalidArgumentError, Violation
from podium.environments.agent import Agent
from podium.environments.base import Environment
from podium.environments.game_2048 import board as rules
from podium.environments.game_2048 import rewards
from podium.environments.game_2048.agents import ExpectimaxAgent, GreedyAgent, RandomAgent
from podium.environments.game_2048.board import MOVES, SIZE, Board
from podium.environments.types import (
    Message,
    Observation,
    Scenario,
    StepResult,
    assistant,
    system,
    user,
)

SCENARIOS = {"train": 128, "heldout": 64}
INSTRUCTION = (
    "You play 2048. A move slides all tiles; equal tiles that meet merge. Make the tile {goal}. "
    "Answer with one word: up, down, left or right."
)
EXAMPLE_BOARD: Board = ((0, 0, 0, 0), (0, 0, 0, 0), (0, 0, 0, 0), (2, 0, 2, 4))
EXAMPLE_MOVE = "left"

_BY_NAME = {str(move): move for move in MOVES}
_ACTION = re.compile(r"\s*(up|down|left|right)\b", re.IGNORECASE)


class Config(BaseModel):
    """Options of the environment."""

    model_config = ConfigDict(extra="forbid")

    rewards: Literal["corrected", "tutorial"] = "corrected"
    """`tutorial` pays row S37 and plays on after the goal."""
    goal: int = Field(default=2048, ge=8, le=131072)
    """The tile that is success; a power of two."""
    max_moves: int = Field(default=0, ge=0)
    """Actions, those without effect too, after which the game ends; 0 for no limit."""

    @field_validator("goal")
    @classmethod
    def _is_a_tile(cls, goal: int) -> int:
        if goal & (goal - 1):
            raise ValueError("must be a power of two")
        return goal


class Game2048(Environment):
    """2048 on a 4 by 4 board.

    An episode ends at the goal tile, without legal moves, or after
    `max_moves`. The rewards of the steps sum to 1 for a game that reached the
    goal with legal moves alone: 0.4 on the way, as the score grows on a
    logarithmic scale, and 0.6 for the goal. An action that cannot be read or
    moves nothing costs 0.02 and leaves the board. Only the goal brings the
    sum above 0.5.

    Metrics: `success`, the goal was reached; `score`, `max_tile` and `moves`
    of the game; `legal`, the share of actions that moved; `valid_format`, the
    share that could be read; `turns`.
    """

    name: ClassVar[str] = "2048"
    description: ClassVar[str] = "Slide and merge tiles on a 4 by 4 board."
    splits: ClassVar[tuple[str, ...]] = ("train", "heldout")
    Config: ClassVar[type[BaseModel]] = Config
    baselines: ClassVar[Mapping[str, Callable[[int], Agent]]] = {
        "random": RandomAgent,
        "greedy": GreedyAgent,
        "expectimax": ExpectimaxAgent,
        # The tutorial's name for the same strategy.
        "minimax": ExpectimaxAgent,
    }

    def scenarios(self, split: str) -> Sequence[Scenario]:
        return [
            Scenario(f"{split}-{number}", {"board": _as_lists(board)}, split)
            for number, board in enumerate(_starts(split))
        ]

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        self._board = _read_board(scenario.data.get("board"), self.config.goal)
        self._rng = random.Random(seed)
        self._score = self._moves = self._turns = self._valid = 0
        messages = [
            system(INSTRUCTION.format(goal=self.config.goal)),
            user(_shown(EXAMPLE_BOARD)),
            assistant(EXAMPLE_MOVE),
            user(_shown(self._board)),
        ]
        return Observation(messages, state=self._state())

    async def step(self, action: Message) -> StepResult:
        self._turns += 1
        match = _ACTION.match(action.content)
        if match is None:
            return self._result(
                "Unknown action. Answer up, down, left or right.", self._invalid_reward(), False, 0
            )
        self._valid += 1
        moved, gained = rules.push(self._board, _BY_NAME[match[1].lower()])
        if moved == self._board:
            return self._result("That moves nothing.", self._invalid_reward(), False, 0)
        before = rewards.progress(self._score, self.config.goal)
        self._board = rules.spawn(moved, self._rng)
        self._score += gained
        self._moves += 1
        if self.config.rewards == "tutorial":
            reward = rewards.tutorial_reward(self._board, gained)
        else:
            after = rewards.progress(self._score, self.config.goal)
            reward = rewards.reward(before, after, self._reached())
        return self._result("", reward, True, gained)

    def _invalid_reward(self) -> float:
        tutorial = self.config.rewards == "tutorial"
        return rewards.TUTORIAL_INVALID if tutorial else rewards.INVALID

    def _reached(self) -> bool:
        goal: int = self.config.goal
        return rules.max_tile(self._board) >= goal

    def _state(self) -> dict[str, Any]:
        """The tutorial's keys (S39)."""
        return {
            "board": _as_lists(self._board),
            "score": self._score,
            "moves_count": self._moves,
            "max_tile": rules.max_tile(self._board),
            "empty_cells": len(rules.empty_cells(self._board)),
            "available_moves": rules.available_moves(self._board),
        }

    def _result(self, complaint: str, reward: float, moved: bool, gained: int) -> StepResult:
        state = self._state()
        ended = (
            not state["available_moves"]
            or self._turns == self.config.max_moves
            or (self._reached() and self.config.rewards == "corrected")
        )
        text = f"{complaint}\n{_shown(self._board)}" if complaint else _shown(self._board)
        return StepResult(
            Observation([] if ended else [user(text)], state=state),
            reward=reward,
            terminated=ended,
            metrics={
                "success": float(self._reached()),
                "score": float(self._score),
                "max_tile": float(state["max_tile"]),
                "moves": float(self._moves),
                "legal": self._moves / self._turns,
                "valid_format": self._valid / self._turns,
                "turns": float(self._turns),
            },
            info={"moved": moved, "score_increase": gained, "max_tile": state["max_tile"]},
        )


def _shown(board: Board) -> str:
    rows = [" ".join(str(tile or ".") for tile in row) for row in board]
    return "\n".join((*rows, f"Moves: {' '.join(rules.available_moves(board))}"))


def _as_lists(board: Board) -> list[list[int]]:
    return [list(row) for row in board]


@cache
def _starts(split: str) -> tuple[Board, ...]:
    """Different boards of two tiles; those that mirror or turn into each other share a split."""
    rng = random.Random("2048-starts")
    found: dict[Board, None] = {}
    while len(found) < SCENARIOS[split]:
        board = rules.start(rng)
        heldout = crc32(repr(rules.canonical(board)).encode()) % 3 == 0
        if heldout == (split == "heldout"):
            found[board] = None
    return tuple(found)


def _read_board(given: Any, goal: int) -> Board:
    right = (
        isinstance(given, list | tuple)
        and len(given) == SIZE
        and all(isinstance(row, list | tuple) and len(row) == SIZE for row in given)
        and all(type(tile) is int and _is_tile(tile) for row in given for tile in row)
    )
    board: Board = tuple(tuple(row) for row in given) if right else ()
    if not right or not rules.available_moves(board) or rules.max_tile(board) >= goal:
        raise InvalidArgumentError(
            violations=[
                Violation(
                    "scenario.data.board",
                    f"got {given!r}; allowed are {SIZE} rows of {SIZE} tiles, each 0 or a power "
                    f"of two from 2 and below the goal {goal}, with a move to make",
                )
            ]
        )
    return board


def _is_tile(tile: int) -> bool:
    return tile == 0 or (tile >= 2 and tile & (tile - 1) == 0)
