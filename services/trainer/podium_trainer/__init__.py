"""The trainer: one job's optimizer, behind podium.trainer.v1."""
