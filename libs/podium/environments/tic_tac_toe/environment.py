"""The environment: a position, a cell's number a turn, and the opponent's answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from podium.core.errors import InvalidArgumentError, Violation
from podium.environments.agent import Agent
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
    to,
    user,
)

INSTRUCTION = "You play tic-tac-toe. Answer with the number of a free cell and nothing else."
WIN, DRAW, LOSS = 1.0, 0.5, 0.0
INVALID = -0.1
MAIN, OPPONENT = "", "opponent"
"""The conversations of the two sides."""

_ACTION = re.compile(r"\s*([1-9])(?!\d)")
_BOARD = re.compile(r"[XO.]{9}")


class Config(BaseModel):
    """Options of the environment."""

    model_config = ConfigDict(extra="forbid")

    mistakes: float = Field(default=0.0, ge=0, le=1)
    """Share of the opponent's moves that are random: 0 is a perfect player, 1 a random one."""
    hints: bool = False
    """Tell the agent which cells complete a row, of its own and of the opponent."""
    self_play: bool = False
    """Ask for the opponent's moves too, in the conversation `opponent`, with rewards of its own."""


@dataclass
class Side:
    """One side, and how it has answered so far."""

    mark: Mark
    has_rules: bool = False
    turns: int = 0
    valid: int = 0
    legal: int = 0

    def metrics(self, board: str) -> dict[str, float]:
        """Of its side alone."""
        winner = rules.winner(board)
        return {
            "success": float(rules.is_over(board) and winner in (None, self.mark)),
            "win": float(winner == self.mark),
            "legal": self.legal / max(1, self.turns),
            "valid_format": self.valid / max(1, self.turns),
            "turns": float(self.turns),
        }

    def outcome(self, board: str) -> float:
        """What the game pays it; nothing while it runs."""
        if not rules.is_over(board):
            return 0.0
        winner = rules.winner(board)
        return DRAW if winner is None else WIN if winner == self.mark else LOSS


class TicTacToe(Environment):
    """Tic-tac-toe from a given position.

    The game earns 1 when won, 0.5 when drawn and 0 when lost. An answer that
    names no free cell costs 0.1 and leaves the board, and the agent is asked
    again. A perfect opponent plays any of its best moves, drawn from the seed.

    Metrics: `success`, the game was won or drawn; `win`; `legal`, the share of
    answers that named a free cell; `valid_format`, the share that named a
    cell; `turns`. In self-play the opponent's are `success/opponent`, …, and
    its rewards are of the side `opponent`.
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
        self._board, mark = _read(scenario.data)
        self._opponent = Player(seed, self.config.mistakes)
        self._seats = {MAIN: Side(mark), OPPONENT: Side(rules.other(mark))}
        if rules.turn(self._board) != mark and not self.config.self_play:
            self._answer()
        return Observation(self._asked(""), state=self._state())

    async def step(self, action: Message) -> StepResult:
        seat = self._seats[self._mover()]
        seat.turns += 1
        match = _ACTION.match(action.content)
        if match is None:
            return self._refused(seat, "Unknown action. Answer with the number of a free cell.")
        seat.valid += 1
        cell = int(match[1]) - 1
        if self._board[cell] != rules.FREE:
            return self._refused(seat, f"Cell {match[1]} is taken.")
        seat.legal += 1
        self._board = rules.play(self._board, cell)
        if not rules.is_over(self._board) and not self.config.self_play:
            self._answer()
        mine, theirs = (self._seats[side].outcome(self._board) for side in (MAIN, OPPONENT))
        return self._result("", mine, theirs)

    def _refused(self, seat: Side, complaint: str) -> StepResult:
        mine = seat is self._seats[MAIN]
        return self._result(complaint, INVALID if mine else 0.0, 0.0 if mine else INVALID)

    def _mover(self) -> str:
        return MAIN if rules.turn(self._board) == self._seats[MAIN].mark else OPPONENT

    def _asked(self, complaint: str) -> list[Message]:
        """What the one whose turn it is reads; `complaint` says why the board has not changed."""
        name = self._mover()
        seat = self._seats[name]
        shown = user("\n".join(filter(None, [complaint, self._shown(self._board, seat.mark)])))
        if seat.has_rules:
            return to(name, shown)
        seat.has_rules = True
        return to(
            name,
            system(INSTRUCTION),
            user(self._shown(positions.EXAMPLE, rules.turn(positions.EXAMPLE))),
            assistant(str(positions.EXAMPLE_CELL)),
            shown,
        )

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
            "agent": self._seats[MAIN].mark,
            "free_cells": [cell + 1 for cell in rules.free_cells(self._board)],
        }

    def _result(self, complaint: str, reward: float, theirs: float) -> StepResult:
        ended = rules.is_over(self._board)
        metrics = self._seats[MAIN].metrics(self._board)
        if self.config.self_play:
            other = self._seats[OPPONENT].metrics(self._board)
            metrics |= {f"{name}/{OPPONENT}": value for name, value in other.items()}
        return StepResult(
            Observation([] if ended else self._asked(complaint), state=self._state()),
            reward=reward,
            terminated=ended,
            metrics=metrics,
            info={"winner": rules.winner(self._board)},
            side_rewards={OPPONENT: theirs} if self.config.self_play else {},
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
