"""A job's events, as pages show them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from podium.core.findings import open_findings
from podium.jobs.v1 import job_service_pb2 as pb

from podium_console.domain import views

_ROW_BYTES = 400


class Events:
    """Oldest first."""

    def __init__(self) -> None:
        """There are none yet."""
        self._rows: list[dict[str, Any]] = []
        self._chars = 0
        self._open: dict[str, str] = {}

    @property
    def open(self) -> dict[str, str]:
        """What the job's coach has found and is not over: its words by reason."""
        return {reason: views.cut(message) for reason, message in self._open.items()}

    @property
    def weight(self) -> int:
        """Bytes that they take, about."""
        return _ROW_BYTES * len(self._rows) + self._chars

    @property
    def last(self) -> int:
        """The sequence number of the newest; 0 without any."""
        return int(self._rows[-1]["sequence"]) if self._rows else 0

    def extend(self, rows: Iterable[pb.Event]) -> None:
        """Adds events that came after those before."""
        for event in rows:
            before = ((pb.EVENT_TYPE_WARNING, message) for message in self._open.values())
            self._open = open_findings([*before, (event.type, event.message)])
            plain = views.event(event)
            self._chars += len(plain["message"])
            self._rows.append(plain)

    def before(self, sequence: int | None, most: int) -> list[dict[str, Any]]:
        """The newest so many before a sequence number, or of all; oldest first."""
        kept: list[dict[str, Any]] = []
        for row in reversed(self._rows):
            if len(kept) == most:
                break
            if sequence is None or row["sequence"] < sequence:
                kept.append(row)
        return kept[::-1]
