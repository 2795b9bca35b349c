"""Coding: write a function; hidden tests decide."""

from podium.environments.coding.environment import Coding

__all__ = ["Coding"]
