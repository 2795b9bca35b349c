"""Client side of deadlines, credentials, spans and metrics, for all four kinds of calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from grpc.aio import ClientCallDetails, Metadata
from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from podium.core.errors import UnauthenticatedError
from podium.core.secrets import of_header
from podium.kit.rpc.ended import StatusStreamUnaryCall, code_now, on_end
from podium.kit.rpc.metrics import CLIENT_HANDLED
from podium.kit.rpc.watched_files import Token, token_now
from podium.kit.telemetry import attributes, tracer, unkept

_tracer = tracer(__name__)

BeforeCall = Callable[[], Awaitable[str]]
"""Awaited before each call; returns the bearer token to present, empty for none."""


class _Client:
    """What every kind of call goes through."""

    def __init__(
        self,
        address: str,
        default_timeout: float | None,
        token: Token,
        before_call: BeforeCall | None,
    ) -> None:
        self._address = address
        self._default_timeout = default_timeout
        self._token = token
        self._before_call = before_call

    async def _call(
        self,
        continuation: Callable[[ClientCallDetails, Any], Any],
        details: ClientCallDetails,
        request: Any,
        unary_response: bool,
    ) -> Any:
        token = await self._before_call() if self._before_call else token_now(self._token)
        path = _path_of(details)
        span, own = self._span(path)
        try:
            call = await continuation(
                self._details(details, span if own else None, token, unary_response), request
            )
        except BaseException as error:
            _finish(path, span, own, _code_of(error))
            raise
        on_end(call, lambda status: _finish(path, span, own, status.code()))
        return call

    def _span(self, path: str) -> tuple[trace.Span, bool]:
        """The span of a call, and whether it was made for it; if not it is the current one.

        Who asks in a CLIENT span, such as a `chat` with a model, has one already: two for one call
        would only be dearer. In a trace that nobody keeps none is made.
        """
        if (dropped := unkept()) is not None:
            return dropped, False
        described = {
            attributes.RPC_SYSTEM_NAME: "grpc",
            attributes.RPC_METHOD: path,
            attributes.SERVER_ADDRESS: self._address,
        }
        current = trace.get_current_span()
        # Of the SDK's spans alone, which light clients do not load.
        if getattr(current, "kind", None) is SpanKind.CLIENT and current.is_recording():
            current.set_attributes(described)
            return current, False
        return _tracer.start_span(path, kind=SpanKind.CLIENT, attributes=described), True

    def _details(
        self, details: ClientCallDetails, own: trace.Span | None, token: str, unary_response: bool
    ) -> ClientCallDetails:
        """What is sent; `own` is the call's span where that is not the current one."""
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(own) if own else None)
        if token:
            carrier["authorization"] = f"Bearer {_presented(token)}"
        # A new object: the caller may use its own for the next call too.
        metadata = Metadata(*(details.metadata or ()), *carrier.items())
        timeout = details.timeout
        if timeout is None and unary_response:
            timeout = self._default_timeout
        return ClientCallDetails(
            details.method, timeout, metadata, details.credentials, details.wait_for_ready
        )


def _presented(token: str) -> str:
    try:
        return of_header(token)
    except ValueError as error:
        text = f"the bearer token {error}"
        raise UnauthenticatedError(text, reason="TOKEN_MALFORMED") from None


class UnaryInterceptor(_Client):
    """Calls with one request and one response, of a channel without interceptors for them."""

    def __init__(self, address: str, default_timeout: float | None, token: Token) -> None:
        """Nothing is awaited before a call; see `client_interceptors` for those where it is."""
        super().__init__(address, default_timeout, token, None)

    def __call__(
        self, details: ClientCallDetails, begin: Callable[[ClientCallDetails], Any]
    ) -> Any:
        """The call that `begin` makes."""
        path = _path_of(details)
        span, own = self._span(path)
        try:
            token = token_now(self._token)
            call = begin(self._details(details, span if own else None, token, True))
        except BaseException as error:
            _finish(path, span, own, _code_of(error))
            raise
        call.add_done_callback(lambda ended: _finish(path, span, own, code_now(ended)))
        return call


class _UnaryUnary(_Client, grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return await self._call(continuation, details, request, unary_response=True)


class _StreamUnary(_Client, grpc.aio.StreamUnaryClientInterceptor):
    async def intercept_stream_unary(self, continuation: Any, details: Any, requests: Any) -> Any:
        call = await self._call(continuation, details, requests, unary_response=True)
        return StatusStreamUnaryCall(call)


class _UnaryStream(_Client, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        return await self._call(continuation, details, request, unary_response=False)


class _StreamStream(_Client, grpc.aio.StreamStreamClientInterceptor):
    async def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        return await self._call(continuation, details, requests, unary_response=False)


def client_interceptors(
    address: str,
    default_timeout: float | None,
    token: Token,
    before_call: BeforeCall | None,
) -> list[grpc.aio.ClientInterceptor]:
    """One a kind: grpc.aio takes an object that is several for the first alone.

    Unary calls are intercepted only where something is awaited before them; else they are
    `UnaryInterceptor`.
    """
    described = (address, default_timeout, token, before_call)
    kinds: list[grpc.aio.ClientInterceptor] = [
        _StreamUnary(*described),
        _UnaryStream(*described),
        _StreamStream(*described),
    ]
    return [*kinds, _UnaryUnary(*described)] if before_call else kinds


def _path_of(details: ClientCallDetails) -> str:
    method = details.method
    return (method.decode() if isinstance(method, bytes) else method).lstrip("/")


def _finish(path: str, span: trace.Span, own: bool, code: grpc.StatusCode) -> None:
    service, _, method = path.rpartition("/")
    CLIENT_HANDLED.labels(service, method, code.name).inc()
    span.set_attribute(attributes.RPC_RESPONSE_STATUS_CODE, code.name)
    if code is not grpc.StatusCode.OK:
        span.set_attribute(attributes.ERROR_TYPE, code.name)
        span.set_status(Status(StatusCode.ERROR))
    if own:
        span.end()


def _code_of(error: BaseException) -> grpc.StatusCode:
    if isinstance(error, grpc.aio.AioRpcError):
        return error.code()
    cancelled = isinstance(error, asyncio.CancelledError)
    return grpc.StatusCode.CANCELLED if cancelled else grpc.StatusCode.UNKNOWN
