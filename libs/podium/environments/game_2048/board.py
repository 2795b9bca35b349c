"""The rules of 2048, on boards that are tuples of rows of tile values; 0 is an empty cell."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Literal, get_args

Move = Literal["up", "down", "left", "right"]
Line = tuple[int, ...]
Board = tuple[Line, ...]

MOVES: tuple[Move, ...] = get_args(Move)
SIZE = 4
EMPTY: Board = ((0,) * SIZE,) * SIZE
SPAWNS = ((2, 0.9), (4, 0.1))
"""Tiles that appear after a move, each with its probability."""


@lru_cache(maxsize=1 << 17)
def merge_line(line: Line) -> tuple[Line, int]:
    """A line pushed towards its first cell, and the sum of the tiles that merged.

    Pairs merge from the first cell on, and a merged tile does not merge again.
    """
    merged: list[int] = []
    gained, last = 0, 0
    for tile in line:
        if tile and tile == last:
            merged[-1] = 2 * tile
            gained += 2 * tile
            last = 0
        elif tile:
            merged.append(tile)
            last = tile
    return tuple(merged) + (0,) * (len(line) - len(merged)), gained


@lru_cache(maxsize=1 << 17)
def merge_line_back(line: Line) -> tuple[Line, int]:
    """`merge_line` towards the last cell."""
    merged, gained = merge_line(line[::-1])
    return merged[::-1], gained


def transposed(board: Board) -> Board:
    """Rows as columns."""
    # `strict` doubles the time of what the search does most.
    return tuple(zip(*board))  # noqa: B905


def push(board: Board, move: Move) -> tuple[Board, int]:
    """The board after a move and before the new tile, and the score gained.

    An illegal move gives the same board.
    """
    upright = move in ("up", "down")
    lines = transposed(board) if upright else board
    merge = merge_line if move in ("up", "left") else merge_line_back
    merged = [merge(line) for line in lines]
    moved = tuple(line for line, _ in merged)
    return (transposed(moved) if upright else moved), sum(gained for _, gained in merged)


def available_moves(board: Board) -> list[Move]:
    """The moves that change the board, in the order of `MOVES`; none means game over."""
    return [move for move in MOVES if push(board, move)[0] != board]


def empty_cells(board: Board) -> list[tuple[int, int]]:
    """Row and column of each empty cell."""
    return [(r, c) for r, line in enumerate(board) for c, tile in enumerate(line) if not tile]


def max_tile(board: Board) -> int:
    """The greatest tile."""
    return max(map(max, board))


def place(board: Board, row: int, column: int, tile: int) -> Board:
    """The board with one cell set."""
    line = board[row]
    changed = (*line[:column], tile, *line[column + 1 :])
    return (*board[:row], changed, *board[row + 1 :])


def spawn(board: Board, rng: random.Random) -> Board:
    """The board with a new tile on a random empty cell; it must have one."""
    row, column = rng.choice(empty_cells(board))
    tile = rng.choices([tile for tile, _ in SPAWNS], [share for _, share in SPAWNS])[0]
    return place(board, row, column, tile)


def start(rng: random.Random) -> Board:
    """A board of two tiles."""
    return spawn(spawn(EMPTY, rng), rng)


def canonical(board: Board) -> Board:
    """The least of the eight boards that turning and mirroring give."""
    variants = []
    for upright in (board, transposed(board)):
        for rows in (upright, upright[::-1]):
            variants += [rows, tuple(line[::-1] for line in rows)]
    return min(variants)
