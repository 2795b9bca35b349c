"""How good a board looks, in the tutorial's numbers (rows S37, S38 and S40 of the reference study).

Each is a sum over lines, so what a line contributes is worked out once.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from podium.environments.game_2048.board import Board, Line, max_tile, transposed

EMPTY_WEIGHT = 10
MAX_WEIGHT = 100
SMOOTH_WEIGHT = 50
MONOTONE_WEIGHT = 100


class Shape(NamedTuple):
    """What a line adds to the evaluation, in log2 of tiles."""

    rise: int
    """How far it climbs from its first cell to its last."""
    fall: int
    smoothness: int
    empty: int
    top: int


def exponent(tile: int) -> int:
    """log2 of a tile, 0 for an empty cell."""
    return max(tile.bit_length() - 1, 0)


@lru_cache(maxsize=1 << 17)
def shape(line: Line) -> Shape:
    """Climbs skip empty cells between tiles; an empty cell at either end counts as 0.

    Smoothness is minus the differences of neighbours that are both tiles.
    """
    steps = [exponent(tile) for tile in line if tile]
    if line[0] == 0:
        steps.insert(0, 0)
    if line[-1] == 0:
        steps.append(0)
    climbs = [after - before for before, after in pairwise(steps)]
    return Shape(
        rise=sum(climb for climb in climbs if climb > 0),
        fall=-sum(climb for climb in climbs if climb < 0),
        smoothness=-sum(
            abs(exponent(one) - exponent(two)) for one, two in pairwise(line) if one and two
        ),
        empty=line.count(0),
        top=exponent(max(line)),
    )


def smoothness(board: Board) -> int:
    """Minus the sum of log2 differences between neighbouring tiles; 0 is smoothest."""
    return sum(shape(line).smoothness for line in (*board, *transposed(board)))


def monotonicity(board: Board) -> int:
    """Minus what would have to be levelled for all rows, and all columns, to run one way."""
    total = 0
    for lines in (board, transposed(board)):
        shapes = [shape(line) for line in lines]
        total -= min(sum(s.rise for s in shapes), sum(s.fall for s in shapes))
    return total


def evaluate_board(board: Board) -> int:
    """10 · empty cells + 100 · log2 of the greatest tile + 50 · smoothness + 100 · monotonicity."""
    return (
        EMPTY_WEIGHT * sum(line.count(0) for line in board)
        + MAX_WEIGHT * exponent(max_tile(board))
        + SMOOTH_WEIGHT * smoothness(board)
        + MONOTONE_WEIGHT * monotonicity(board)
    )
