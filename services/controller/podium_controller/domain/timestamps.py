"""Points in time: nanoseconds inside, protobuf timestamps outside."""

from __future__ import annotations

import calendar
import time

from google.protobuf.timestamp_pb2 import Timestamp


def now_ns() -> int:
    """Nanoseconds since the epoch, by this machine's clock."""
    return time.time_ns()


def month() -> str:
    """The calendar month, in UTC: `2026-11`."""
    return time.strftime("%Y-%m", time.gmtime())


def month_start() -> int:
    """When the calendar month began, in UTC, in seconds since the epoch."""
    now = time.gmtime()
    return calendar.timegm((now.tm_year, now.tm_mon, 1, 0, 0, 0))


def timestamp(nanoseconds: int) -> Timestamp:
    """As protobuf has it."""
    stamp = Timestamp()
    stamp.FromNanoseconds(nanoseconds)
    return stamp
