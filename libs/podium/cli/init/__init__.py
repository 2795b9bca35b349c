"""`podium init`: a folder with a task of one's own."""

from podium.cli.init.command import init

__all__ = ["init"]
