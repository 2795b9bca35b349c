"""What a job waits for, in words for programs and for people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

TRAINER_STARTING = "TRAINER_STARTING"
"""The reason of a wait that every trainer has once."""

ENVIRONMENT_STARTING = "ENVIRONMENT_STARTING"
"""The same of an environment that is given as an image."""

TRAINER_POOL_STARTING = "TRAINER_POOL_STARTING"
"""The same of a trainer pool that is there only while jobs want it."""


@dataclass(frozen=True)
class Wait:
    """What a job waits for: `reason` for programs, `message` for people; both empty for nothing."""

    reason: str
    message: str


NOTHING = Wait("", "")
"""It waits for nothing."""

PLACES = (
    *("MAX_ACTIVE_JOBS", "PROJECT_ACTIVE_JOBS", "PROJECT_GPUS"),
    *("POOL_FULL", "POOL_TAKEN", "TRAINER_POOL_FULL", "TRAINER_TAKEN"),
)
"""Reasons to wait that end when a job which runs gives its place up."""

OnWait = Callable[[Wait], Awaitable[None]]
