"""What the OpenAI API's requests hold before vLLM looks: the policy that they name is fetched, and
what a model of text cannot read is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any

from podium.core.errors import (
    InvalidArgumentError,
    NotFoundError,
    PodiumError,
    UnavailableError,
)
from podium.core.openai_parts import no_words

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

    def __init__(self, app: App, want: Want, base_model: str, *, text_only: bool = False) -> None:
        """`base_model` is the name that needs no policy, `text_only` what it can read."""
        self._app = app
        self._want = want
        self._base_model = base_model
        self._text_only = text_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        messages, whole = await _read(receive)
        fields = _fields(messages) if whole else {}
        if self._text_only and (wrong := no_words(fields)):
            await _refuse(send, InvalidArgumentError(violations=wrong), param=wrong[0].field)
            return
        name = _model(fields)
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


def _fields(messages: list[MutableMapping[str, Any]]) -> Mapping[str, Any]:
    """The body's JSON object; empty for anything else."""
    try:
        fields = json.loads(b"".join(message.get("body", b"") for message in messages))
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _model(fields: Mapping[str, Any]) -> str:
    model = fields.get("model")
    return model if isinstance(model, str) else ""


def _policy(name: str) -> Named | None:
    """Job and version; None for what cannot be a policy's name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return match["job"], int(match["version"]) if match["version"] else None


async def _refuse(send: Send, error: PodiumError, param: str = "model") -> None:
    """As OpenAI's API tells of errors; its clients repeat a 503."""
    away = isinstance(error, UnavailableError)
    body = {
        "error": {
            "message": str(error),
            "type": "service_unavailable_error" if away else "invalid_request_error",
            "param": param,
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
