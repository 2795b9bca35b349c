"""A job's events, as pages show them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from podium.jobs.v1 import job_service_pb2 as pb

from podium_console.domain import views

_ROW_BYTES = 400


class Events:
    """Oldest first."""

    def __init__(self) -> None:
        """There are none yet."""
        self._rows: list[dict[str, Any]] = []
        self._chars = 0

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
