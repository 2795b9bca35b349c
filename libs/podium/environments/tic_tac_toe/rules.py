"""Tic-tac-toe, solved. A board is nine characters, row by row: X, O, or a dot; X begins."""

from __future__ import annotations

from functools import cache
from typing import Literal

Mark = Literal["X", "O"]

FREE = "."
EMPTY = FREE * 9
LINES = (
    (0, 1, 2),
    (3, 4, 5),
    (6, 7, 8),
    (0, 3, 6),
    (1, 4, 7),
    (2, 5, 8),
    (0, 4, 8),
    (2, 4, 6),
)
_MIRRORED = (2, 1, 0, 5, 4, 3, 8, 7, 6)
_TURNED = (6, 3, 0, 7, 4, 1, 8, 5, 2)


def free_cells(board: str) -> list[int]:
    """Free cells, from 0."""
    return [cell for cell, mark in enumerate(board) if mark == FREE]


def turn(board: str) -> Mark:
    """Whose move it is."""
    return "X" if board.count("X") == board.count("O") else "O"


def other(mark: Mark) -> Mark:
    """The other player."""
    return "O" if mark == "X" else "X"


def play(board: str, cell: int) -> str:
    """The board after the one whose turn it is takes a cell, from 0."""
    return board[:cell] + turn(board) + board[cell + 1 :]


@cache
def winner(board: str) -> Mark | None:
    """Who has three in a row."""
    marks: tuple[Mark, ...] = ("X", "O")
    for mark in marks:
        if any(all(board[cell] == mark for cell in line) for line in LINES):
            return mark
    return None


def is_over(board: str) -> bool:
    """Somebody has won, or no cell is free."""
    return winner(board) is not None or FREE not in board


@cache
def score(board: str) -> int:
    """For the one whose turn it is, with best play of both: above 0 won, 0 drawn, below lost.

    A win is worth one more than the cells left free, so the sooner one is the better.
    """
    if winner(board) is not None:
        return -1 - board.count(FREE)  # The other one made the row.
    return max((-score(play(board, cell)) for cell in free_cells(board)), default=0)


def value(board: str) -> int:
    """The sign of the score: 1 won, 0 drawn, -1 lost."""
    return (score(board) > 0) - (score(board) < 0)


def best_cells(board: str) -> list[int]:
    """The cells, from 0, that keep the board's score."""
    return [cell for cell in free_cells(board) if -score(play(board, cell)) == score(board)]


@cache
def worst(board: str) -> int:
    """The worst that can become of the one whose turn it is, against a perfect player."""
    if is_over(board):
        return value(board)
    results = []
    for after in (play(board, cell) for cell in free_cells(board)):
        if is_over(after):
            results.append(-value(after))
        else:
            results += [worst(play(after, cell)) for cell in best_cells(after)]
    return min(results)


def winning_cells(board: str, mark: Mark) -> list[int]:
    """The cells, from 0, that would complete a row of `mark`."""
    return [
        cell
        for cell in free_cells(board)
        if winner(board[:cell] + mark + board[cell + 1 :]) == mark
    ]


def symmetries(board: str) -> list[str]:
    """The eight boards that turning and mirroring give, the board itself first."""
    found = []
    for start in (board, "".join(board[cell] for cell in _MIRRORED)):
        turned = start
        for _ in range(4):
            found.append(turned)
            turned = "".join(turned[cell] for cell in _TURNED)
    return found


def canonical(board: str) -> str:
    """The least of the symmetries."""
    return min(symmetries(board))
