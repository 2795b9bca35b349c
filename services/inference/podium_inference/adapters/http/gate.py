"""The door of the HTTP API: which routes there are, who may call them, and under which key."""

from __future__ import annotations

import json
import re
from collections.abc import MutableMapping
from typing import Any

from podium_inference.adapters.http.capture import (
    App,
    CapturedRequest,
    Receive,
    Scope,
    Send,
    in_request,
)
from podium_inference.adapters.http.keys import Keys, presented

OPEN = frozenset({("GET", "/health")})
"""What anybody may ask: whether the engine lives, without a body."""

ROUTES = frozenset(
    {
        ("GET", "/v1/models"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("POST", "/v1/responses"),
        ("GET", "/v1/responses/{id}"),
        ("POST", "/v1/responses/{id}/cancel"),
        ("POST", "/v1/messages"),
        ("POST", "/v1/messages/count_tokens"),
        ("POST", "/tokenize"),
        ("POST", "/detokenize"),
    }
)
"""What callers with a key may ask. vLLM has more routes, and every release some others: for
administration, for clouds, second ways to the same. They are not there."""

_PATTERNS = [
    (method, re.compile(path.replace("{id}", r"[\w.-]{1,256}"), re.ASCII))
    for method, path in ROUTES
]


class Gate:
    """ASGI middleware, the outermost: nothing of a body is read before it has decided."""

    def __init__(self, app: App, keys: Keys) -> None:
        """`app` asks for no key itself."""
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            # Before it is accepted a websocket is refused so, with 403.
            await send({"type": "websocket.close", "code": 1008})
            return
        method, path = scope["method"], scope["path"]
        if (method, path) in OPEN or (method == "OPTIONS" and _is_route(path)):
            # A browser asks by OPTIONS whether it may call, and shows no key; CORS answers.
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        shown = presented(headers)
        if not self._keys.admit(shown):
            await _refuse(send, 401, "authentication_error", _who(shown))
            return
        if not _is_route(path, method):
            await _refuse(send, 404, "not_found_error", f"there is no {method} {path} here")
            return
        key = self._keys.rollout(shown)
        if not key:
            await self._app(scope, receive, send)
            return
        repeated = headers.get(b"x-stainless-retry-count", b"0") != b"0"
        request = CapturedRequest(key, repeated, path)

        async def receive_and_keep() -> MutableMapping[str, Any]:
            message = await receive()
            request.body += message.get("body", b"")
            return message

        with in_request(request):
            await self._app(scope, receive_and_keep, send)


def _is_route(path: str, method: str = "") -> bool:
    return any(method in ("", known) and pattern.fullmatch(path) for known, pattern in _PATTERNS)


def _who(shown: list[str]) -> str:
    if not shown:
        return "this API needs a key, as bearer token in `authorization` or in `x-api-key`"
    return "the key is none of this API's; a rollout's key needs the signature that goes with it"


async def _refuse(send: Send, status: int, kind: str, message: str) -> None:
    """As OpenAI's clients and Anthropic's both read it."""
    error = {"type": kind, "message": message, "param": None, "code": kind}
    headers = [(b"content-type", b"application/json")]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    body = json.dumps({"type": "error", "error": error}).encode()
    await send({"type": "http.response.body", "body": body})
