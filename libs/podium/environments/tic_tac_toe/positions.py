"""Where games start: every position in which the agent still has something to lose."""

from __future__ import annotations

import random
from functools import cache

from podium.environments.tic_tac_toe import rules

EXAMPLE = "XX.OO...."
"""The position of the prompt's worked example; no game starts from it."""
EXAMPLE_CELL = 3
_HELDOUT_SHARE = 1 / 3


@cache
def starts(split: str) -> tuple[str, ...]:
    """Positions that are not lost for the one whose turn it is, and that it can spoil.

    Of each the eight symmetric boards count as one, so no two starts, of one
    split or of both, turn or mirror into each other. Shuffled once.
    """
    rng = random.Random("tic-tac-toe-starts")
    classes = sorted(board for board in _reachable() if _matters(board))
    rng.shuffle(classes)
    boards = [rng.choice(rules.symmetries(board)) for board in classes]
    cut = round(len(boards) * _HELDOUT_SHARE)
    return tuple(boards[:cut] if split == "heldout" else boards[cut:])


def _matters(board: str) -> bool:
    if rules.is_over(board) or board == rules.canonical(EXAMPLE):
        return False
    return rules.worst(board) < rules.value(board) >= 0


def _reachable() -> set[str]:
    """Every position that a game can reach, one of each class."""
    found = {rules.EMPTY}
    edge = [rules.EMPTY]
    while edge:
        board = edge.pop()
        if rules.is_over(board):
            continue
        for cell in rules.free_cells(board):
            after = rules.canonical(rules.play(board, cell))
            if after not in found:
                found.add(after)
                edge.append(after)
    return found
