"""Answers: JSON, errors as JSON with the status that fits, streams of events and of lines."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from podium.core import errors
from podium.core.tasks import cancel_and_wait
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from podium_console.domain import metrics

logger = logging.getLogger(__name__)


class TooLargeError(errors.InvalidArgumentError):
    """A request's body goes over the bound."""


class LateError(errors.DeadlineExceededError):
    """A request's body does not come."""


STATUS: dict[type[errors.PodiumError], int] = {
    errors.InvalidArgumentError: 400,
    TooLargeError: 413,
    LateError: 408,
    errors.OutOfRangeError: 400,
    errors.UnauthenticatedError: 401,
    errors.PermissionDeniedError: 403,
    errors.NotFoundError: 404,
    errors.AlreadyExistsError: 409,
    errors.FailedPreconditionError: 409,
    errors.AbortedError: 409,
    errors.ResourceExhaustedError: 429,
    errors.InternalError: 502,
    errors.DataLossError: 502,
    errors.UnimplementedError: 502,
    errors.UnavailableError: 503,
    errors.RequestCancelledError: 503,
    errors.DeadlineExceededError: 504,
}
KEEP_ALIVE_SECONDS = 15.0
"""How long a stream may say nothing."""
_RETRY_MS = 2000
LINES = "application/x-ndjson"


def plain_error(error: errors.PodiumError) -> dict[str, Any]:
    """An error, with every violation and its line."""
    violations = error.violations if isinstance(error, errors.InvalidArgumentError) else ()
    return {
        "error": {
            "message": error.message[:4000],
            "reason": error.reason,
            "error_id": error.metadata.get("error_id", ""),
            "violations": [
                {"field": v.field, "description": v.description, "line": v.line}
                for v in violations[:200]
            ],
        }
    }


async def on_error(request: Request, error: Exception) -> Response:
    """The answer to what a handler raised on purpose."""
    assert isinstance(error, errors.PodiumError)
    return JSONResponse(plain_error(error), STATUS.get(type(error), 502))


def on_defect(request: Request, error: Exception) -> Response:
    """The answer to what nobody foresaw."""
    return JSONResponse(plain_error(masked(error)), 500)


def masked(error: Exception) -> errors.InternalError:
    """What is told of what nobody foresaw: an id, under which the log has the rest."""
    error_id = uuid.uuid4().hex
    logger.error("a request failed", exc_info=error, extra={"error_id": error_id})
    words = f"the console failed; its log has the id {error_id}"
    return errors.InternalError(words, metadata={"error_id": error_id})


def event(name: str, data: Any, sequence: int | None = None) -> bytes:
    """One server-sent event. JSON has no line ends, so none can be forged."""
    head = f"id: {sequence}\n" if sequence is not None else ""
    return f"{head}event: {name}\ndata: {dumps(data)}\n\n".encode()


def dumps(data: Any) -> str:
    """JSON as short as it goes; what is no number raises ValueError rather than break a page."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@dataclass(frozen=True)
class Framing:
    """How a stream is written."""

    media_type: str
    problem: Callable[[errors.PodiumError], bytes]
    """The last thing that is said of one that fails."""
    begin: bytes = b""
    idle: bytes = b""
    """Said when nothing has been for a while, so that nobody takes it for dead."""
    end: bytes = b""
    drained: bool = False
    """Whether one that is cut as the service drains fails. A browser asks again by itself."""


def _problem(error: errors.PodiumError) -> bytes:
    return event("problem", {**plain_error(error), "status": STATUS.get(type(error), 502)})


EVENTS = Framing(
    "text/event-stream",
    problem=_problem,
    begin=f"retry: {_RETRY_MS}\n\n".encode(),
    idle=b": still here\n\n",
)


def event_stream(
    request: Request,
    source: AsyncIterator[bytes],
    framing: Framing = EVENTS,
    coming: asyncio.Future[bytes | None] | None = None,
) -> Response:
    """What a source says until it ends, the reader goes, or the service drains.

    A PodiumError of the source is told in the stream; of the framing of events as `problem`, after
    which the browser asks again.

    Args:
        coming: the first piece, where it has been asked for.

    Raises:
        ResourceExhaustedError: too many are open.
    """
    state = request.app.state
    if state.streams >= state.settings.max_streams:
        raise errors.ResourceExhaustedError(
            f"{state.streams} streams are open already; try again later"
        )
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    body = _framed(source, state, framing, coming)
    return StreamingResponse(body, media_type=framing.media_type, headers=headers)


async def following(source: AsyncIterator[bytes]) -> bytes | None:
    """The next piece; None after the last."""
    return await anext(source, None)


async def _framed(
    source: AsyncIterator[bytes],
    state: Any,
    framing: Framing,
    coming: asyncio.Future[bytes | None] | None,
) -> AsyncIterator[bytes]:
    state.streams += 1
    metrics.STREAMS.set(state.streams)
    draining = asyncio.ensure_future(state.draining.wait())
    try:
        yield framing.begin
        while not draining.done():
            coming = coming or asyncio.ensure_future(following(source))
            await asyncio.wait(
                (coming, draining),
                timeout=KEEP_ALIVE_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if coming.done():
                piece, coming = coming, None
                if (found := piece.result()) is None:
                    yield framing.end
                    return
                yield found
            elif not draining.done():
                yield framing.idle
        if framing.drained:
            yield framing.problem(errors.UnavailableError("it stops", reason="DRAINING"))
    except errors.PodiumError as error:
        yield framing.problem(error)
    finally:
        state.streams -= 1
        metrics.STREAMS.set(state.streams)
        await cancel_and_wait(*filter(None, (draining, coming)))
        if hasattr(source, "aclose"):
            await source.aclose()


async def lines(source: AsyncIterator[Any]) -> Response:
    """JSON objects, one a line, as they come. What fails before the first is the answer's status;
    what fails later is a last line with `error`."""
    first = await anext(source)

    async def body() -> AsyncIterator[bytes]:
        async with aclosing(source):  # type: ignore[type-var]
            yield f"{dumps(first)}\n".encode()
            try:
                async for piece in source:
                    yield f"{dumps(piece)}\n".encode()
            except errors.PodiumError as error:
                yield f"{dumps(plain_error(error))}\n".encode()

    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(body(), media_type=LINES, headers=headers)
