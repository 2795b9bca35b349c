"""What a check found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, and what to do about it."""

    level: Literal["error", "warning"]
    """An error fails jobs or makes them learn nothing; a warning may be meant so."""
    what: str
    """What it is about: `class`, `scenarios`, `reset`, `step`, `score`, `reward`, `tools`, `time`,
    `end`."""
    said: str
    advice: str = ""
    line: str = ""
    """`task.py:12`, where an exception came from."""


@dataclass(frozen=True)
class Report:
    """All findings, and what was seen on the way."""

    name: str
    findings: tuple[Finding, ...]
    scenarios: Mapping[str, int] = field(default_factory=dict)
    """How many each split has."""
    episodes: int = 0
    """Those that were played to an end or to the bound of turns."""
    ended: int = 0
    """Those of them that the environment ended itself."""
    turns: int = 0
    rewards: tuple[float, ...] = ()
    """Of each episode, its steps' and its score's."""
    slowest_seconds: float = 0.0

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are errors."""
        return tuple(found for found in self.findings if found.level == "error")


def error(what: str, said: str, advice: str = "", line: str = "") -> Finding:
    """An error."""
    return Finding("error", what, said, advice, line)


def warning(what: str, said: str, advice: str = "") -> Finding:
    """A warning."""
    return Finding("warning", what, said, advice)
