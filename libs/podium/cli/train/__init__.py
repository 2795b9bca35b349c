"""`podium train`: a task of one's own, trained on this machine."""

from podium.cli.train.command import train

__all__ = ["train"]
