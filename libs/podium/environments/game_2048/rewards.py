"""What a move earns: the tutorial's shaping, and the one that replaces it."""

from __future__ import annotations

from math import log2

from podium.environments.game_2048.board import Board, empty_cells, max_tile
from podium.environments.game_2048.evaluation import exponent, smoothness

TUTORIAL_INVALID = -0.1
INVALID = -0.02
PROGRESS = 0.4
GOAL = 0.6


def tutorial_reward(board: Board, gained: int) -> float:
    """Row S37: score/100 + 0.01 · empty + 0.1 · log2 of the greatest tile + 0.05 · smoothness.

    `board` is the one after the new tile.
    """
    return (
        gained / 100
        + 0.01 * len(empty_cells(board))
        + 0.1 * exponent(max_tile(board))
        + 0.05 * smoothness(board)
    )


def progress(score: int, goal: int) -> float:
    """How far a score is towards a goal tile, in [0, 1] on a logarithmic scale.

    A tile 2^k merged from twos scores (k - 1) · 2^k on its way.
    """
    needed = goal * (exponent(goal) - 1)
    return min(1.0, log2(1 + score) / log2(1 + needed))


def reward(before: float, after: float, reached: bool) -> float:
    """0.4 for the way to the goal, in parts as it is gone, and 0.6 for reaching it.

    `before` and `after` are `progress`. The parts of an episode add up, so no
    detour is paid for.
    """
    return PROGRESS * ((1.0 if reached else after) - before) + GOAL * reached
