"""One shape for the four kinds of server calls, so that layers are written once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any

import grpc

from podium.kit.rpc.incoming import FirstMessages, Incoming, RequestCheck
from podium.kit.rpc.limits import request_bytes


@dataclass
class ServerCall:
    """A call as the layers see it."""

    path: str
    """`/podium.x.v1.XService/Method`."""
    context: grpc.aio.ServicerContext[Any, Any]
    metadata: Mapping[str, str | bytes]
    """What the client sent; the last value of a repeated key."""
    server_streaming: bool
    peer: str
    """Where it comes from. Read once: asking gRPC again after the connection has gone can crash
    the process."""
    code: grpc.StatusCode = grpc.StatusCode.OK
    """How it ended, once it has."""
    public: bool = False
    """It was let in without credentials, which other methods need."""
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

    @property
    def watching(self) -> bool:
        """Whether it goes on until its client leaves: a server stream named `Watch…`, as AIP names
        them."""
        return self.server_streaming and self.method.startswith("Watch")


Layer = Callable[[ServerCall], AbstractAsyncContextManager[None]]
"""Surrounds a call: sees it begin, its exception, and its end."""


class LayeredInterceptor(grpc.aio.ServerInterceptor):
    """Puts layers around every method, the first one outermost.

    The outer layers judge a call by its headers, before any of its messages is received; the
    inner ones surround it from its first message on. Servicers read requests from the iterator
    that they are given. Response iterators are closed as soon as the call ends, so that a
    `finally` in a servicer runs when the client goes away and not when memory is collected.
    """

    def __init__(
        self,
        outer: Sequence[Layer],
        inner: Sequence[Layer],
        check: RequestCheck,
        first_messages: FirstMessages,
        max_message_bytes: int,
    ) -> None:
        """`max_message_bytes` bounds what a method's own limit is."""
        self._outer = tuple(outer)
        self._inner = tuple(inner)
        self._check = check
        self._first_messages = first_messages
        self._max_message_bytes = max_message_bytes

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        path = handler_call_details.method
        path = path.decode() if isinstance(path, bytes) else path
        metadata = dict(handler_call_details.invocation_metadata or ())
        return self._wrap(handler, path, metadata)

    def _wrap(self, handler: Any, path: str, metadata: Mapping[str, str | bytes]) -> Any:
        limit = min(request_bytes(path), self._max_message_bytes)
        behaviour = (
            handler.stream_stream
            or handler.stream_unary
            or handler.unary_stream
            or handler.unary_unary
        )

        # Serialised in here, so that a servicer's wrong answer is masked like any other defect.
        def serialized(response: Any) -> bytes:
            if isinstance(response, bytes):
                return response
            return bytes(handler.response_serializer(response))

        async def enter(stack: AsyncExitStack, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            call = ServerCall(path, context, metadata, handler.response_streaming, context.peer())
            for layer in self._outer:
                await stack.enter_async_context(layer(call))
            incoming = Incoming(path, context, handler.request_deserializer, self._check, limit)
            await incoming.begin(self._first_messages)
            for layer in self._inner:
                await stack.enter_async_context(layer(call))
            return incoming.messages() if handler.request_streaming else incoming.only()

        async def unary_response(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
            async with AsyncExitStack() as stack:
                return serialized(await behaviour(await enter(stack, context), context))
            raise AssertionError("a layer swallowed an exception")

        async def stream_response(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            async with AsyncExitStack() as stack:
                responses = behaviour(await enter(stack, context), context)
                if not inspect.isasyncgen(responses):
                    await responses
                    return
                async with aclosing(responses):
                    async for response in responses:
                        await context.write(serialized(response))

        # All take a stream of bytes: gRPC would receive and parse a single request before it calls
        # anything of ours. On the wire there is no difference.
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(
                stream_response, response_serializer=serialized
            )
        return grpc.stream_unary_rpc_method_handler(unary_response, response_serializer=serialized)
