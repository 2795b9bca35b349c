"""How many calls a server runs at once, by what they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from podium.core.errors import ResourceExhaustedError
from podium.kit.rpc.call import ServerCall

PUBLIC_CALLS = 16
"""Calls of methods that anybody may call, where others need credentials."""


class CallSlots:
    """Work, watches, and what needs no credentials: none of them takes another's places."""

    def __init__(self, work: int, watches: int, public: int = PUBLIC_CALLS) -> None:
        """How many of each."""
        self._most = {"call": work, "watch": watches, "public call": public}
        self._running = dict.fromkeys(self._most, 0)

    @asynccontextmanager
    async def layer(self, call: ServerCall) -> AsyncIterator[None]:
        """Holds a place while a call runs.

        Raises:
            ResourceExhaustedError: TOO_MANY_CALLS, TOO_MANY_WATCHES.
        """
        kind = "public call" if call.public else "watch" if call.watching else "call"
        if self._running[kind] >= self._most[kind]:
            raise ResourceExhaustedError(
                f"this server runs {self._most[kind]} {kind}s at once, and all are taken",
                reason="TOO_MANY_WATCHES" if kind == "watch" else "TOO_MANY_CALLS",
            )
        self._running[kind] += 1
        try:
            yield
        finally:
            self._running[kind] -= 1
