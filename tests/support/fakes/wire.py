"""How a call reaches a fake peer. By itself at once; a simulation puts a network in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Later:
    """What a handler returns that is not done: a peer goes on whether its caller lives or not."""

    work: Callable[[], Any]


class Wire:
    """Delivers every call, and loses nothing."""

    async def call(self, peer: str, method: str, handle: Callable[[], Any]) -> Any:
        """What `handle` returns or raises at the peer."""
        result = handle()
        while isinstance(result, Later):
            result = result.work()
        return result

    def behind(self, peer: str, work: Callable[[], Any]) -> None:
        """A peer does something of its own, that ends before anybody looks or later.

        What it is doing is lost with it.
        """
        work()

    def reach(self, peer: str) -> None:
        """For a peer that calls another.

        Raises:
            UnavailableError: the other is away.
        """
