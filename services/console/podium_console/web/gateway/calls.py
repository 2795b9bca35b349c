"""One call: `POST /podium.jobs.v1.JobService/CreateJob` with the request as JSON."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from google.protobuf.message import Message
from podium.core.contract.text import nearest
from podium.core.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    PodiumError,
    ResourceExhaustedError,
    UnimplementedError,
    Violation,
)
from podium.core.tasks import cancel_and_wait
from podium.kit.rpc import rpc_errors
from starlette.requests import Request
from starlette.responses import Response

from podium_console.adapters.methods import METHODS, Method
from podium_console.domain import json_messages
from podium_console.web import arguments, replies
from podium_console.web.gateway import framings, refusals
from podium_console.web.gateway.framings import ENVELOPES, JSON

PREFIX = "/podium."
"""What paths of methods begin with, and no page's."""
HTTP_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""Those that are answered: POST with what the method says, all others with a refusal."""
_MOST_BYTES = 8 * 2**20
"""Of an answer, as gRPC sends it. As JSON it is some twenty times as much while it is made."""
_THREAD_BYTES = 64 * 1024
"""From so many on nobody else's answer waits while it is made; and one is made at a time."""
_MILLISECONDS = re.compile(r"[0-9]{1,10}")


async def call(request: Request) -> Response:
    """The answer, or what is wrong, as the Connect protocol says it."""
    try:
        return await _answer(request)
    except replies.TooLargeError as error:
        refused = ResourceExhaustedError(error.message, reason=error.reason)
        return refusals.answer(refused, 413)
    except replies.LateError as error:
        return refusals.answer(error, 408, {"connection": "close"})
    except PodiumError as error:
        return refusals.answer(error)
    except Exception as error:
        return refusals.answer(replies.masked(error))


async def _answer(request: Request) -> Response:
    path = request.url.path.lstrip("/")
    method = METHODS.get(path)
    if method is None:
        words = nearest(path[:200], METHODS) or "; the documents have a list: docs/how-to/http.md"
        refused = UnimplementedError(f"there is no method {path[:200]!r}{words}")
        return refusals.answer(refused, 404)
    if request.method != "POST":
        refused = UnimplementedError(f"got {request.method}; allowed is POST")
        return refusals.answer(refused, 405, {"allow": "POST"})
    allowed = (JSON, ENVELOPES) if method.streams else (JSON,)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in allowed:
        words = f"content-type: got {kind[:80]!r}; allowed is {' or '.join(allowed)}"
        refused = UnimplementedError(words, reason="NOT_JSON")
        return refusals.answer(refused, 415, {"accept-post": ", ".join(allowed)})
    if (encoding := request.headers.get("content-encoding", "identity")) != "identity":
        words = f"content-encoding: got {encoding[:80]!r}; allowed is identity"
        raise UnimplementedError(words)
    if kind == ENVELOPES:
        return await _enveloped(request, method)
    message = json_messages.read(await arguments.whole_body(request), method.request)
    begun = _begin(request, method, message)
    if method.streams:
        return await _lines(request, method, begun)
    with rpc_errors(method.peer):
        response = await begun
    headers = {"cache-control": "no-store"}
    return Response(await _written(request, response), media_type=JSON, headers=headers)


def _begin(request: Request, method: Method, message: Message) -> Any:
    channel = arguments.installation(request).channel(method.peer)
    return method.call(channel, message, _seconds(request))


def _seconds(request: Request) -> float | None:
    version = request.headers.get("connect-protocol-version", "1")
    if version != "1":
        raise arguments.wrong("connect-protocol-version", f"got {version[:40]!r}; allowed is 1")
    text = request.headers.get("connect-timeout-ms")
    if text is None:
        return None
    if not _MILLISECONDS.fullmatch(text):
        allowed = "allowed are milliseconds in at most ten digits"
        raise InvalidArgumentError(
            violations=[Violation("connect-timeout-ms", f"got {text[:40]!r}; {allowed}")]
        )
    if not int(text):
        raise DeadlineExceededError("connect-timeout-ms is 0: its time is over")
    return int(text) / 1000


async def _written(request: Request, message: Message) -> bytes:
    """The message as JSON.

    Raises:
        ResourceExhaustedError: it is too large for that.
        FailedPreconditionError: JSON cannot say it.
    """
    size = message.ByteSize()
    if size > _MOST_BYTES:
        raise ResourceExhaustedError(
            f"the answer has {size} bytes, and here at most {_MOST_BYTES}: ask for less at once "
            "with a smaller page_size, or by gRPC",
            reason="ANSWER_TOO_LARGE",
        )
    if size < _THREAD_BYTES:
        return json_messages.write(message)
    async with request.app.state.writing:
        return await asyncio.to_thread(json_messages.write, message)


async def _lines(request: Request, method: Method, begun: Any) -> Response:
    """A line a message. What is wrong with the request is the answer's status, if it is told soon:
    a watch of a job that does nothing says nothing."""
    source = _messages(request, method, begun, framings.line)
    coming = asyncio.ensure_future(replies.following(source))
    try:
        await asyncio.wait((coming,), timeout=replies.KEEP_ALIVE_SECONDS)
        if coming.done():
            coming.result()
        return replies.event_stream(request, source, framings.LINES, coming)
    except BaseException:
        await cancel_and_wait(coming)
        await source.aclose()
        raise


async def _enveloped(request: Request, method: Method) -> Response:
    """Envelopes of the protocol, whose last one has the error: the status is always 200."""

    async def source() -> AsyncIterator[bytes]:
        message = json_messages.read(framings.opened(body), method.request)
        begun = _begin(request, method, message)
        async for piece in _messages(request, method, begun, framings.envelope):
            yield piece

    body = await arguments.whole_body(request)
    return replies.event_stream(request, source(), framings.CONNECT)


async def _messages(
    request: Request, method: Method, begun: Any, framed: Callable[[bytes], bytes]
) -> AsyncGenerator[bytes, None]:
    try:
        with rpc_errors(method.peer):
            async for message in begun:
                yield framed(await _written(request, message))
    finally:
        begun.cancel()
