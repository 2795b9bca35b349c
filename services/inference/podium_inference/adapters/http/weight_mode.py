"""Tells the OpenAI API's clients how the pool holds policies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from podium.core.weight_modes import WEIGHT_MODE_HEADER

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class TellsWeightMode:
    """ASGI middleware: a header on every answer, by which a judge knows a policy in training."""

    def __init__(self, app: App, mode: str) -> None:
        """`mode` is one of `podium.core.weight_modes`."""
        self._app = app
        self._header = (WEIGHT_MODE_HEADER.encode(), mode.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection."""

        async def send_with_mode(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), self._header]}
            await send(message)

        await self._app(scope, receive, send_with_mode)
