"""2048: slide and merge tiles on a 4 by 4 board."""

from podium.environments.game_2048.environment import Game2048

__all__ = ["Game2048"]
