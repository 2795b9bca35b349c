"""How a call really ended.

gRPC writes its own status over the server's when a write meets the end of the call: a server that
refuses a stream while the client still sends is then heard as an end without a reason. The
server's status arrives all the same, before or after.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

import grpc

T = TypeVar("T")

BROKEN_WRITE = "Internal error from Core"
"""gRPC's details of a call that ended under a write; no server says it."""


def on_end(call: grpc.aio.Call, on_status: Callable[[grpc.aio.AioRpcError], None]) -> None:
    """Calls `on_status` once, with the status that the server or the client's own limits gave.

    A call that went well gives OK, as an error that nobody raises.
    """
    ended = False

    def done(finished: Any) -> None:
        nonlocal ended
        status = _status_of(finished)
        if not ended and not is_broken_write(status):
            ended = True
            on_status(status)

    call.add_done_callback(done)


def code_now(call: Any) -> grpc.StatusCode:
    """How a finished call without a stream ended."""
    code: grpc.StatusCode = _now(call.code())
    return code


def is_broken_write(error: grpc.aio.AioRpcError) -> bool:
    """Whether it hides the status that ended the call."""
    return error.code() is grpc.StatusCode.INTERNAL and error.details() == BROKEN_WRITE


class StatusStreamUnaryCall(grpc.aio.StreamUnaryCall[Any, Any]):
    """A client-streaming call that raises the server's status, whatever its writes met."""

    def __init__(self, call: grpc.aio.StreamUnaryCall[Any, Any]) -> None:
        """Nothing has been awaited of it yet."""
        self._call = call
        self._end: grpc.aio.AioRpcError | None = None
        on_end(call, self._on_status)

    def _on_status(self, status: grpc.aio.AioRpcError) -> None:
        self._end = status

    def __await__(self) -> Generator[Any, None, Any]:
        try:
            return (yield from self._call.__await__())
        except grpc.aio.AioRpcError as error:
            # The response ends with the server's status: by now it is here.
            if self._end is None or not is_broken_write(error):
                raise
            raise self._end from None

    def cancelled(self) -> bool:
        """See grpc.aio.Call."""
        return self._call.cancelled()

    def done(self) -> bool:
        """See grpc.aio.Call."""
        return self._call.done()

    def time_remaining(self) -> float | None:
        """See grpc.aio.Call."""
        return self._call.time_remaining()

    def cancel(self) -> bool:
        """See grpc.aio.Call."""
        return self._call.cancel()

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """See grpc.aio.Call."""
        self._call.add_done_callback(callback)

    async def initial_metadata(self) -> Any:
        """See grpc.aio.Call."""
        return await self._call.initial_metadata()

    async def trailing_metadata(self) -> Any:
        """See grpc.aio.Call."""
        found = await self._call.trailing_metadata()
        return found if self._end is None else self._end.trailing_metadata()

    async def code(self) -> grpc.StatusCode:
        """See grpc.aio.Call."""
        found = await self._call.code()
        return found if self._end is None else self._end.code()

    async def details(self) -> str:
        """See grpc.aio.Call."""
        found = await self._call.details()
        return found if self._end is None else self._end.details() or ""

    async def wait_for_connection(self) -> None:
        """See grpc.aio.Call."""
        await self._call.wait_for_connection()

    async def write(self, request: Any) -> None:
        """See grpc.aio.StreamUnaryCall."""
        await self._call.write(request)

    async def done_writing(self) -> None:
        """See grpc.aio.StreamUnaryCall."""
        await self._call.done_writing()

    def __getattr__(self, name: str) -> Any:
        # What gRPC's own wrapper of intercepted calls looks at besides.
        return getattr(self._call, name)


def _status_of(call: Any) -> grpc.aio.AioRpcError:
    """Of a finished call."""
    return grpc.aio.AioRpcError(
        _now(call.code()),
        grpc.aio.Metadata.from_tuple(tuple(_now(call.initial_metadata()) or ())),
        grpc.aio.Metadata.from_tuple(tuple(_now(call.trailing_metadata()) or ())),
        _now(call.details()),
    )


def _now(finished: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that has nothing to wait for, without a task."""
    try:
        finished.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finished.close()
    raise RuntimeError("a finished call had no status")
