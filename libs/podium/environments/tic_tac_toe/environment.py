"""The environment: a position, a cell's number a turn, and the opponent's answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from podium.core.errors import InvalidArgumentError, Violation
from podium.environments.agents import Agent
from podium.environments.base import Environment
from podium.environments.tic_tac_toe import positions, rules
from podium.environments.tic_tac_toe.agents import Player, careless, perfect
from podium.environments.tic_tac_toe.rules import Mark
from podium.environments.types import (
    Message,
    Observation,
    Scenario,
    StepResult,
    assistant,
    system,
    user,
)

INSTRUCTION = "You play tic-tac-toe. Answer with the number of a free cell and nothing else."
WIN, DRAW, LOSS = 1.0, 0.5, 0.0
INVALID = -0.1

_ACTION = re.compile(r"\s*([1-9])(?!\d)")
_BOARD = re.compile(r"[XO.]{9}")


class Config(BaseModel):
    """Options of the environment."""

    model_config = ConfigDict(extra="forbid")

    mistakes: float = Field(default=0.0, ge=0, le=1)
    """Share of the opponent's moves that are random: 0 is a perfect player, 1 a random one."""
    hints: bool = False
    """Tell the agent which cells complete a row, of its own and of the opponent."""


class TicTacToe(Environment):
    """Tic-tac-toe from a given position.

    The game earns 1 when won, 0.5 when drawn and 0 when lost. An answer that
    names no free cell costs 0.1 and leaves the board, and the agent is asked
    again. A perfect opponent plays any of its best moves, drawn from the seed.

    Metrics: `success`, the game was won or drawn; `win`; `legal`, the share of
    answers that named a free cell; `valid_format`, the share that named a
    cell; `turns`.
    """

    name: ClassVar[str] = "tic_tac_toe"
    description: ClassVar[str] = "Play tic-tac-toe against a perfect player."
    splits: ClassVar[tuple[str, ...]] = ("train", "heldout")
    Config: ClassVar[type[BaseModel]] = Config
    baselines: ClassVar[Mapping[str, Callable[[int], Agent]]] = {
        "perfect": perfect,
        "random": careless,
    }

    def scenarios(self, split: str) -> Sequence[Scenario]:
        return [
            Scenario(f"{split}-{number}", {"board": board, "agent": rules.turn(board)}, split)
            for number, board in enumerate(positions.starts(split))
        ]

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        self._board, self._mark = _read(scenario.data)
        self._opponent = Player(seed, self.config.mistakes)
        self._turns = self._valid = self._legal = 0
        if rules.turn(self._board) != self._mark:
            self._answer()
        messages = [
            system(INSTRUCTION),
            user(self._shown(positions.EXAMPLE, rules.turn(positions.EXAMPLE))),
            assistant(str(positions.EXAMPLE_CELL)),
            user(self._shown(self._board, self._mark)),
        ]
        return Observation(messages, state=self._state())

    async def step(self, action: Message) -> StepResult:
        self._turns += 1
        match = _ACTION.match(action.content)
        if match is None:
            return self._result("Unknown action. Answer with the number of a free cell.")
        self._valid += 1
        cell = int(match[1]) - 1
        if self._board[cell] != rules.FREE:
            return self._result(f"Cell {match[1]} is taken.")
        self._legal += 1
        self._board = rules.play(self._board, cell)
        if not rules.is_over(self._board):
            self._answer()
        return self._result("")

    def _answer(self) -> None:
        self._board = rules.play(self._board, self._opponent.choose(self._board))

    def _shown(self, board: str, mark: Mark) -> str:
        cells = [
            str(number) if cell == rules.FREE else cell for number, cell in enumerate(board, 1)
        ]
        lines = [" ".join(cells[start : start + 3]) for start in (0, 3, 6)]
        lines.append(f"You are {mark}. Free: {_numbers(rules.free_cells(board))}")
        if self.config.hints:
            for who in (mark, rules.other(mark)):
                if winning := rules.winning_cells(board, who):
                    lines.append(f"{who} wins at: {_numbers(winning)}")
        return "\n".join(lines)

    def _state(self) -> dict[str, Any]:
        return {
            "board": self._board,
            "agent": self._mark,
            "free_cells": [cell + 1 for cell in rules.free_cells(self._board)],
        }

    def _result(self, complaint: str) -> StepResult:
        """`complaint` says why the board has not changed; empty when it has."""
        ended = rules.is_over(self._board)
        winner = rules.winner(self._board)
        reward = INVALID if complaint else 0.0
        if ended:
            reward = DRAW if winner is None else WIN if winner == self._mark else LOSS
        shown = self._shown(self._board, self._mark)
        text = f"{complaint}\n{shown}" if complaint else shown
        return StepResult(
            Observation([] if ended else [user(text)], state=self._state()),
            reward=reward,
            terminated=ended,
            metrics={
                "success": float(ended and winner in (None, self._mark)),
                "win": float(winner == self._mark),
                "legal": self._legal / self._turns,
                "valid_format": self._valid / self._turns,
                "turns": float(self._turns),
            },
            info={"winner": winner},
        )


def _numbers(cells: Sequence[int]) -> str:
    return " ".join(str(cell + 1) for cell in cells)


def _read(data: Mapping[str, Any]) -> tuple[str, Mark]:
    board, agent = data.get("board"), data.get("agent")
    violations = []
    if (
        not isinstance(board, str)
        or not _BOARD.fullmatch(board)
        or board.count("X") - board.count("O") not in (0, 1)
        or rules.is_over(board)
    ):
        allowed = "nine of X, O and dot, X first and then in turns, nobody having won"
        violations.append(Violation("scenario.data.board", f"got {board!r}; allowed are {allowed}"))
    if agent not in ("X", "O"):
        violations.append(Violation("scenario.data.agent", f"got {agent!r}; allowed are X and O"))
    if violations:
        raise InvalidArgumentError(violations=violations)
    return str(board), "X" if agent == "X" else "O"
