"""Answers: JSON, errors as JSON with the status that fits, streams of events and of lines."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from podium.core import errors
from podium.core.tasks import cancel_and_wait
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from podium_console.domain import metrics

logger = logging.getLogger(__name__)


class TooLargeError(errors.InvalidArgumentError):
    """A request's body goes over the bound."""


STATUS: dict[type[errors.PodiumError], int] = {
    errors.InvalidArgumentError: 400,
    TooLargeError: 413,
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
_KEEP_ALIVE_SECONDS = 15.0
_RETRY_MS = 2000


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
    """The answer to what nobody foresaw: an id, under which the log has the rest."""
    error_id = uuid.uuid4().hex
    logger.error("a request failed", exc_info=error, extra={"error_id": error_id})
    words = f"the console failed; its log has the id {error_id}"
    return JSONResponse(plain_error(errors.InternalError(words)), 500)


def event(name: str, data: Any, sequence: int | None = None) -> bytes:
    """One server-sent event. JSON has no line ends, so none can be forged."""
    head = f"id: {sequence}\n" if sequence is not None else ""
    return f"{head}event: {name}\ndata: {dumps(data)}\n\n".encode()


def dumps(data: Any) -> str:
    """JSON as short as it goes; what is no number raises ValueError rather than break a page."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def event_stream(request: Request, source: AsyncIterator[bytes]) -> Response:
    """Server-sent events until the source ends, the reader goes, or the service drains.

    A PodiumError of the source becomes the event `problem`, after which the browser asks again.

    Raises:
        ResourceExhaustedError: too many are open.
    """
    state = request.app.state
    if state.streams >= state.settings.max_streams:
        raise errors.ResourceExhaustedError(
            f"{state.streams} pages are told of changes already; try again later"
        )
    body = _told(source, state)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(body, media_type="text/event-stream", headers=headers)


async def _told(source: AsyncIterator[bytes], state: Any) -> AsyncIterator[bytes]:
    state.streams += 1
    metrics.STREAMS.set(state.streams)
    draining = asyncio.ensure_future(state.draining.wait())
    coming: asyncio.Future[bytes] | None = None
    try:
        yield f"retry: {_RETRY_MS}\n\n".encode()
        while not draining.done():
            coming = coming or asyncio.ensure_future(anext(source))
            await asyncio.wait(
                (coming, draining),
                timeout=_KEEP_ALIVE_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if coming.done():
                piece, coming = coming, None
                yield piece.result()
            elif not draining.done():
                yield b": still here\n\n"
    except StopAsyncIteration:
        return
    except errors.PodiumError as error:
        yield event("problem", {**plain_error(error), "status": STATUS.get(type(error), 502)})
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

    headers = {
        "cache-control": "no-store",
        "x-accel-buffering": "no",
        # Compressed, pieces would wait for each other.
        "content-encoding": "identity",
    }
    return StreamingResponse(body(), media_type="application/x-ndjson", headers=headers)
