"""The OpenAI API's requests name policies: one that is not served is fetched before vLLM looks."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from typing import Any

from podium.core.errors import NotFoundError, PodiumError, UnavailableError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Want = Callable[[str, int | None], Awaitable[None]]
"""See `PolicyPool.want`."""

Named = tuple[str, int | None]
"""A job, and the version; None for its newest."""

_named: ContextVar[Named | None] = ContextVar("named", default=None)


def named() -> Named | None:
    """The policy that the request names in whose context this runs, an empty job for the base
    model; None where it names none."""
    return _named.get()


_NAME = re.compile(r"(?P<job>[a-z0-9]([-a-z0-9]{0,126}[a-z0-9])?)(@(?P<version>[0-9]{1,18}))?")


class NamedPolicies:
    """ASGI middleware, behind whatever decides who may call."""

    def __init__(self, app: App, want: Want, base_model: str) -> None:
        """`base_model` is the name that needs no policy."""
        self._app = app
        self._want = want
        self._base_model = base_model

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        messages, whole = await _read(receive)
        name = _model(messages) if whole else ""
        policy = ("", None) if name == self._base_model else _policy(name)
        if policy is not None and policy[0]:
            try:
                await self._want(*policy)
            except NotFoundError:
                # vLLM says so in its own words, with the names that there are.
                pass
            except PodiumError as error:
                await _refuse(send, error)
                return
        kept = iter(messages)

        async def again() -> MutableMapping[str, Any]:
            return next(kept, None) or await receive()

        token = _named.set(policy)
        try:
            await self._app(scope, again, send)
        finally:
            _named.reset(token)


async def _read(receive: Receive) -> tuple[list[MutableMapping[str, Any]], bool]:
    """The request's messages, and whether it came to its end."""
    messages = []
    while True:
        message = await receive()
        messages.append(message)
        if message["type"] != "http.request":
            return messages, False
        if not message.get("more_body", False):
            return messages, True


def _model(messages: list[MutableMapping[str, Any]]) -> str:
    try:
        fields = json.loads(b"".join(message.get("body", b"") for message in messages))
    except (ValueError, RecursionError):
        return ""
    model = fields.get("model") if isinstance(fields, dict) else None
    return model if isinstance(model, str) else ""


def _policy(name: str) -> Named | None:
    """Job and version; None for what cannot be a policy's name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return match["job"], int(match["version"]) if match["version"] else None


async def _refuse(send: Send, error: PodiumError) -> None:
    """As OpenAI's API tells of errors; its clients repeat a 503."""
    away = isinstance(error, UnavailableError)
    body = {
        "error": {
            "message": error.message,
            "type": "service_unavailable_error" if away else "invalid_request_error",
            "param": "model",
            "code": error.reason or None,
        }
    }
    await send(
        {
            "type": "http.response.start",
            "status": 503 if away else 400,
            "headers": [(b"content-type", b"application/json")],
        }
    )
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})
