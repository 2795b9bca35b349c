"""What a launcher tells while it runs."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import StrEnum


class EventKind(StrEnum):
    """What happened to a service."""

    STARTED = "started"
    READY = "ready"
    CRASHED = "crashed"
    RESTARTING = "restarting"
    STOPPED = "stopped"
    KILLED = "killed"
    """It did not end in time after SIGTERM."""
    GAVE_UP = "gave_up"


@dataclass(frozen=True)
class Event:
    """One thing that happened, and its details where they apply."""

    kind: EventKind
    service: str
    message: str
    log_tail: tuple[str, ...] = ()


def describe_exit(code: int) -> str:
    """An exit status for people: `exit code 3`, `SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
