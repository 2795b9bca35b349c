"""The contract's rules at work: checks, defaults, and job files."""

from podium.contract.validate import validate

__all__ = ["validate"]
