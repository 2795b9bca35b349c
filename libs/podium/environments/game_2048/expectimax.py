"""Expectimax over the tutorial's evaluation: every tile on every empty cell, nothing sampled.

The tutorial gives a move that changes nothing the value -1000, and good boards
are often below that, so its inner nodes prefer what cannot be played. Here
such moves are skipped; `illegal_value=-1000` gives the tutorial's numbers.

Speed comes from three facts. A board reached twice at one depth has one value.
A move and the lines that it makes are looked up (`board`, `evaluation`). And
the evaluation is a sum over rows and columns, of which a new tile changes
one each: the mean over all new tiles is then a sum of eight numbers, each of
one line and one total, and no last board is ever built.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from podium.environments.game_2048.board import (
    MOVES,
    SPAWNS,
    Board,
    Line,
    Move,
    empty_cells,
    merge_line,
    merge_line_back,
    place,
    push,
    transposed,
)
from podium.environments.game_2048.evaluation import (
    EMPTY_WEIGHT,
    MAX_WEIGHT,
    MONOTONE_WEIGHT,
    SMOOTH_WEIGHT,
    evaluate_board,
    exponent,
    shape,
)

TUTORIAL_ILLEGAL_VALUE = -1000.0
LOST = -1000.0
"""Added to the evaluation of a board without moves."""
_EXPONENTS = [(exponent(tile), probability) for tile, probability in SPAWNS]
_DIGITS = 6
"""Values that differ later than this differ by rounding, not by worth."""


@dataclass(frozen=True)
class Choice:
    """A move, its expected value, and why it was taken."""

    move: Move
    value: float
    reason: str


class Expectimax:
    """Looks `depth` moves ahead, each followed by a new tile."""

    def __init__(self, depth: int, illegal_value: float | None = None) -> None:
        """`depth` is at least 1; `illegal_value` None skips moves that change nothing.

        Raises:
            ValueError: a depth below 1.
        """
        if depth < 1:
            raise ValueError(f"depth is {depth}; allowed is 1 or more")
        self._depth = depth
        self._illegal_value = illegal_value
        self._before: dict[tuple[Board, int], float] = {}
        self._after: dict[tuple[Board, int], float] = {}

    def values(self, board: Board) -> dict[Move, float]:
        """What each move is worth; skipped moves are absent."""
        self._before.clear()
        self._after.clear()
        found: dict[Move, float] = {}
        for move in MOVES:
            after, _ = push(board, move)
            if after != board:
                found[move] = self._after_move(after, self._depth)
            elif self._illegal_value is not None:
                found[move] = self._illegal_value
        return found

    def choose(self, board: Board) -> Choice:
        """The best move, of equals the first in the order of `MOVES`."""
        values = {move: round(value, _DIGITS) for move, value in self.values(board).items()}
        if not values:
            return Choice("up", float(evaluate_board(board)) + LOST, "no move is possible")
        move = max(values, key=values.__getitem__)
        return Choice(move, values[move], f"best of {len(values)} moves at depth {self._depth}")

    def _before_move(self, board: Board, depth: int) -> float:
        key = (board, depth)
        known = self._before.get(key)
        if known is not None:
            return known
        best: float | None = None
        for lines in (board, transposed(board)):
            for merge in (merge_line, merge_line_back):
                after = tuple([merge(line)[0] for line in lines])
                if after != lines:
                    # Not transposed back: a board and its transpose are worth the same.
                    value = self._after_move(after, depth)
                elif self._illegal_value is not None:
                    value = self._illegal_value
                else:
                    continue
                if best is None or value > best:
                    best = value
        if best is None:
            best = evaluate_board(board) + LOST
        self._before[key] = best
        return best

    def _after_move(self, board: Board, depth: int) -> float:
        key = (board, depth)
        known = self._after.get(key)
        if known is not None:
            return known
        if depth == 1:
            value = _expected_evaluation(board)
        else:
            cells = empty_cells(board)
            value = sum(
                probability * self._before_move(place(board, row, column, tile), depth - 1)
                for row, column in cells
                for tile, probability in SPAWNS
            ) / len(cells)
        self._after[key] = value
        return value


def _expected_evaluation(board: Board) -> float:
    """Mean of `evaluate_board` over every new tile; at least one cell is empty."""
    empty = smooth = levelled = top = 0
    changes = 0.0
    for lines in (board, transposed(board)):
        first, second, third, fourth = map(shape, lines)
        rise = first[0] + second[0] + third[0] + fourth[0]
        fall = first[1] + second[1] + third[1] + fourth[1]
        levelled += fall
        smooth += first[2] + second[2] + third[2] + fourth[2]
        empty = first[3] + second[3] + third[3] + fourth[3]
        top = max(first[4], second[4], third[4], fourth[4])
        for line in lines:
            changes += _changes(line, rise - fall)
    return (
        EMPTY_WEIGHT * (empty - 1)
        + MAX_WEIGHT * (top if top >= _EXPONENTS[-1][0] else _expected_top(top))
        + SMOOTH_WEIGHT * smooth
        - MONOTONE_WEIGHT * levelled
        + changes / empty
    )


def _expected_top(top: int) -> float:
    return sum(probability * max(top, new) for new, probability in _EXPONENTS)


@lru_cache(maxsize=1 << 17)
def _changes(line: Line, slope: int) -> float:
    """What a new tile on this line changes, summed over its empty cells.

    `slope` is the rise minus the fall of all lines of the direction. Against a
    monotonicity of minus that fall, a tile that adds dr to the rise and df to
    the fall makes -min(slope + dr, df), as min(r + dr, f + df) - f is that.
    """
    before = shape(line)
    total = 0.0
    for cell, tile in enumerate(line):
        if tile:
            continue
        for new, probability in SPAWNS:
            after = shape((*line[:cell], new, *line[cell + 1 :]))
            total += probability * (
                SMOOTH_WEIGHT * (after.smoothness - before.smoothness)
                - MONOTONE_WEIGHT * min(slope + after.rise - before.rise, after.fall - before.fall)
            )
    return total
