"""The services' log files: rotated by run, read back for people."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

KEEP_RUNS = 5
"""Older runs' logs that stay, as `<service>.log.1` (the last) to `.5`."""

_TAIL_BYTES = 64 * 1024
_KNOWN = {"time", "timestamp", "ts", "level", "severity", "message", "msg", "event", "logger"}
# Shown by name on every line they would be noise; the file has them.
_QUIET = {"service", "trace_id", "span_id", "pid", "version"}


def log_path(data_dir: Path, service: str) -> Path:
    """Where a service's output goes."""
    return data_dir / "logs" / f"{service}.log"


def rotate(path: Path) -> None:
    """Moves the last run's log away, and drops the oldest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        return
    for run in range(KEEP_RUNS - 1, 0, -1):
        older = path.with_name(f"{path.name}.{run}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{run + 1}"))
    path.replace(path.with_name(f"{path.name}.1"))


def tail(path: Path, lines: int) -> list[str]:
    """The last lines of a file, for people; none when it does not exist."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return [readable(line) for line in text.splitlines()[-lines:]]


def readable(line: str) -> str:
    """A JSON log line as `08:21:02 WARNING logger: message key=value`; others as they are."""
    record = parse(line)
    if record is None:
        return line
    text = _first(record, "message", "msg", "event")
    extras = " ".join(
        f"{key}={value}" for key, value in record.items() if _worth_showing(key, value)
    )
    parts = [
        _clock(_first(record, "time", "timestamp", "ts")),
        _first(record, "level", "severity").upper(),
        f"{record['logger']}:" if record.get("logger") else "",
        text,
        extras,
    ]
    head = " ".join(part for part in parts if part)
    trace = record.get("exception") or record.get("exc_info") or record.get("stack")
    return f"{head}\n{trace}" if isinstance(trace, str) else head


def parse(line: str) -> dict[str, object] | None:
    """The record of a JSON log line; None for any other line."""
    if not line.startswith("{"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def mentions(line: str, job_id: str) -> bool:
    """Whether a log line is about a job: it names the id as a whole word."""
    start = line.find(job_id)
    while start >= 0:
        end = start + len(job_id)
        before = line[start - 1] if start else " "
        after = line[end] if end < len(line) else " "
        if not _part_of_id(before) and not _part_of_id(after):
            return True
        start = line.find(job_id, end)
    return False


def matching(lines: Iterable[str], job_id: str) -> list[str]:
    """The lines about a job, for people."""
    return [readable(line) for line in lines if mentions(line, job_id)]


def _part_of_id(character: str) -> bool:
    return character.isalnum() or character == "-"


def _worth_showing(key: str, value: object) -> bool:
    return (
        key not in _KNOWN
        and key not in _QUIET
        and key not in {"exception", "exc_info", "stack"}
        and value not in ("", None)
    )


def _first(record: dict[str, object], *keys: str) -> str:
    return next((str(record[key]) for key in keys if record.get(key) not in (None, "")), "")


def _clock(stamp: str) -> str:
    if not stamp:
        return ""
    try:
        moment = (
            datetime.fromtimestamp(float(stamp), UTC)
            if stamp.replace(".", "", 1).isdigit()
            else datetime.fromisoformat(stamp)
        )
    except (ValueError, OverflowError):
        return stamp
    return moment.astimezone().strftime("%H:%M:%S")
