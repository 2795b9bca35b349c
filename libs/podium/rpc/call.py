"""One shape for the four kinds of server calls, so that layers are written once."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from podium.core.errors import InvalidArgumentError


@dataclass
class ServerCall:
    """A call as the layers see it."""

    path: str
    """`/podium.x.v1.XService/Method`."""
    context: grpc.aio.ServicerContext
    metadata: Mapping[str, str | bytes]
    """What the client sent; the last value of a repeated key."""
    server_streaming: bool
    peer: str
    """Where it comes from. Read once: asking gRPC again after the connection has gone can crash
    the process."""
    code: grpc.StatusCode = grpc.StatusCode.OK
    """How it ended, once it has."""
    draining: bool = False
    """It was cut because the server stops."""
    error_id: str = field(default="")
    """Of a masked exception."""

    @property
    def service(self) -> str:
        """`podium.x.v1.XService`."""
        return self.path.rpartition("/")[0].lstrip("/")

    @property
    def method(self) -> str:
        """`Method`."""
        return self.path.rpartition("/")[2]


Layer = Callable[[ServerCall], AbstractAsyncContextManager[None]]
"""Surrounds a call: sees it begin, its exception, and its end."""

RequestCheck = Callable[[Message], None]
"""Sees every request message; raises when it is wrong."""


class LayeredInterceptor(grpc.aio.ServerInterceptor):
    """Puts layers around every method, the first one outermost.

    Servicers read requests from the iterator that they are given. Response
    iterators are closed as soon as the call ends, so that a `finally` in a
    servicer runs when the client goes away and not when memory is collected.
    """

    def __init__(self, layers: Sequence[Layer], check: RequestCheck) -> None:
        self._layers = tuple(layers)
        self._check = check

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        path = handler_call_details.method
        path = path.decode() if isinstance(path, bytes) else path
        metadata = dict(handler_call_details.invocation_metadata or ())
        return _wrap(handler, path, metadata, self._layers, self._check)


class _Malformed:
    """Stands for a request that could not be parsed, until a layer can say so."""


_MALFORMED = _Malformed()


def _wrap(
    handler: Any,
    path: str,
    metadata: Mapping[str, str | bytes],
    layers: Sequence[Layer],
    check: RequestCheck,
) -> Any:
    def checked(request: Any) -> Any:
        if isinstance(request, _Malformed):
            raise InvalidArgumentError(
                f"the request's bytes are no valid message of {path.lstrip('/')}",
                reason="MALFORMED_REQUEST",
                metadata={"method": path.lstrip("/")},
            )
        if isinstance(request, Message):
            check(request)
        return request

    async def checked_stream(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for request in requests:
            yield checked(request)

    # Serialised in here, so that a servicer's wrong answer is masked like any other defect.
    def serialized(response: Any) -> bytes:
        return response if isinstance(response, bytes) else handler.response_serializer(response)

    async def enter(stack: AsyncExitStack, context: grpc.aio.ServicerContext) -> None:
        call = ServerCall(path, context, metadata, handler.response_streaming, context.peer())
        for layer in layers:
            await stack.enter_async_context(layer(call))

    behaviour = (
        handler.stream_stream or handler.stream_unary or handler.unary_stream or handler.unary_unary
    )

    def prepared(incoming: Any) -> Any:
        return checked_stream(incoming) if handler.request_streaming else checked(incoming)

    async def unary_response(incoming: Any, context: grpc.aio.ServicerContext) -> bytes:
        async with AsyncExitStack() as stack:
            await enter(stack, context)
            return serialized(await behaviour(prepared(incoming), context))
        raise AssertionError("a layer swallowed an exception")

    async def stream_response(incoming: Any, context: grpc.aio.ServicerContext) -> None:
        async with AsyncExitStack() as stack:
            await enter(stack, context)
            responses = behaviour(prepared(incoming), context)
            if not inspect.isasyncgen(responses):
                await responses
                return
            async with aclosing(responses):
                async for response in responses:
                    await context.write(serialized(response))

    deserializer = _guarded(handler.request_deserializer)
    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[handler.request_streaming, handler.response_streaming]
    return make(
        stream_response if handler.response_streaming else unary_response,
        request_deserializer=deserializer,
        response_serializer=serialized,
    )


def _guarded(deserializer: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    if deserializer is None:
        return None

    def parse(data: bytes) -> Any:
        # gRPC parses before any interceptor's code runs, and would answer
        # UNKNOWN with the parser's own words.
        try:
            return deserializer(data)
        except (DecodeError, ValueError):
            return _MALFORMED

    return parse
