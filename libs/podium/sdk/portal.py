"""The thread on which a synchronous client's calls run."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, TypeVar, TypeVarTuple, overload

from anyio.from_thread import start_blocking_portal

from podium.core.errors import FailedPreconditionError

R = TypeVar("R")
Ts = TypeVarTuple("Ts")
_LEFT: list[ExitStack] = []
"""Of forked processes. Whoever drops one ends the thread that is not there, and waits for it."""


class Portal:
    """A thread with an event loop, for calls from the other threads of this process."""

    def __init__(self) -> None:
        """Starts the thread."""
        self._process = os.getpid()
        self._exit = ExitStack()
        self._portal = self._exit.enter_context(start_blocking_portal())

    @overload
    def call(self, function: Callable[[*Ts], Awaitable[R]], *arguments: *Ts) -> R: ...

    @overload
    def call(self, function: Callable[[*Ts], R], *arguments: *Ts) -> R: ...

    def call(self, function: Callable[[*Ts], Any], *arguments: *Ts) -> Any:
        """Runs the function on the thread, and what it awaits, and returns what came of it.

        Raises:
            FailedPreconditionError: this process was forked from the one that has the thread
                (FORKED); a call would wait for ever.
        """
        if self._is_elsewhere:
            raise FailedPreconditionError(
                "this client was opened before the process was forked; open one in each process",
                reason="FORKED",
            )
        return self._portal.call(function, *arguments)

    def on_close(self, function: Callable[[], Awaitable[None]]) -> None:
        """Has `close` run it, the last one first."""
        self._exit.callback(self._portal.call, function)

    def close(self) -> None:
        """Ends the thread. Idempotent; a forked process has none to end."""
        if self._is_elsewhere:
            _LEFT.append(self._exit.pop_all())
        self._exit.close()

    @property
    def _is_elsewhere(self) -> bool:
        return os.getpid() != self._process
