"""Tic-tac-toe against a perfect player."""

from podium.environments.tic_tac_toe.environment import TicTacToe

__all__ = ["TicTacToe"]
