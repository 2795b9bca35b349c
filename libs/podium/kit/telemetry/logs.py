"""Structured logs with the trace they belong to."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from opentelemetry import trace

LogFormat = Literal["json", "text"]

# What a LogRecord always has; everything else on it came from `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# They log every request or frame at INFO or below.
_CHATTY = ("httpx", "httpx2", "httpcore", "mcp", "aiosqlite", "asyncio", "grpc")


def setup_logging(
    service: str, level: str = "INFO", log_format: LogFormat = "text", stream: TextIO | None = None
) -> None:
    """Sends every log record to `stream` (stderr), one line each.

    JSON lines have `time` (RFC 3339, UTC), `level`, `logger`, `message`,
    `service`, `trace_id` and `span_id` inside a span, `exception`, and every
    key of `extra`.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json(service) if log_format == "json" else _Text())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _trace_ids() -> dict[str, str]:
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


class _Json(logging.Formatter):
    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "service": self._service,
            **_trace_ids(),
            **_extra(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class _Text(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        pairs = {**_extra(record), **_trace_ids()}
        pairs.pop("span_id", None)
        return " ".join((super().formatMessage(record), *(f"{k}={v}" for k, v in pairs.items())))
