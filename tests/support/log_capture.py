"""pytest's capture of logs, without looking through every logger six times a test.

It attaches its two handlers to each logger that does not propagate, before a test's setup, call and
teardown, and finds those among all: with torch there are thousands, and it took a thirtieth of the
unit tests' time. Here they are found once a test.
"""

from __future__ import annotations

import logging
from typing import Any

from _pytest.logging import catching_logs

_apart: list[logging.Logger] = []


def find_loggers() -> None:
    """Before each test."""
    # A copy: another thread may be making one.
    loggers = list(logging.root.manager.loggerDict.values())
    _apart[:] = [
        each for each in loggers if isinstance(each, logging.Logger) and not each.propagate
    ]


def _enter(self: catching_logs[Any]) -> Any:
    if self.level is not None:
        return _enter_with_level(self)
    for logger in (logging.root, *_apart):
        logger.addHandler(self.handler)
        self.attached_loggers.append(logger)
    return self.handler


_enter_with_level = catching_logs.__enter__
catching_logs.__enter__ = _enter  # type: ignore[method-assign]
