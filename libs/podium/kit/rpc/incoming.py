"""The request messages of a call, received only after its caller was let in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from podium.core.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    ResourceExhaustedError,
)

RequestCheck = Callable[[Message], None]
"""Sees every request message; raises when it is wrong."""


class FirstMessages:
    """Where calls wait for their first message: for a while, and so many of them.

    A call that says nothing holds nothing else, and one place here. When all are taken the call
    that has waited longest gives up its own: who speaks at once gets through, however many are
    silent.
    """

    def __init__(self, most: int, seconds: float) -> None:
        """`seconds` for each of `most` calls."""
        self._most = most
        self._seconds = seconds
        self._waiting: dict[asyncio.Timeout, None] = {}

    async def receive(self, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """The first message's bytes, or gRPC's EOF.

        Raises:
            DeadlineExceededError: FIRST_MESSAGE_LATE.
        """
        if len(self._waiting) >= self._most:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.reschedule(asyncio.get_running_loop().time())
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                self._waiting[limit] = None
                return await context.read()
        except TimeoutError:
            raise DeadlineExceededError(
                f"no request message came; a call has {self._seconds:g} seconds to send its first,"
                " and less when many wait",
                reason="FIRST_MESSAGE_LATE",
            ) from None
        finally:
            self._waiting.pop(limit, None)


class Incoming:
    """The messages of one call."""

    def __init__(
        self,
        path: str,
        context: grpc.aio.ServicerContext[Any, Any],
        deserializer: Callable[[bytes], Any] | None,
        check: RequestCheck,
        limit: int,
    ) -> None:
        """Nothing is received yet.

        Args:
            limit: bytes that one message may have.
        """
        self._method = path.lstrip("/")
        self._context = context
        self._deserializer = deserializer
        self._check = check
        self._limit = limit
        self._first: Any = grpc.aio.EOF

    async def begin(self, first_messages: FirstMessages) -> None:
        """Receives the first message; it is not parsed yet.

        Raises:
            DeadlineExceededError: it does not come.
            ResourceExhaustedError: it is too large.
        """
        self._first = self._within(await first_messages.receive(self._context))

    def only(self) -> Any:
        """The one request of a method without a stream of them.

        Raises:
            InvalidArgumentError: there is none, it is malformed or breaks the contract.
        """
        if self._first is grpc.aio.EOF:
            raise InvalidArgumentError(
                f"the call ended without a request message of {self._method}",
                reason="REQUEST_MISSING",
                metadata={"method": self._method},
            )
        return self._parsed(self._first)

    async def messages(self) -> AsyncIterator[Any]:
        """All of them, each received when it is asked for; errors as those of `begin`, `only`."""
        data = self._first
        while data is not grpc.aio.EOF:
            yield self._parsed(data)
            data = self._within(await self._context.read())

    def _within(self, data: Any) -> Any:
        if data is not grpc.aio.EOF and len(data) > self._limit:
            raise ResourceExhaustedError(
                f"received message larger than max ({len(data)} vs. {self._limit})",
                reason="MESSAGE_TOO_LARGE",
                metadata={"method": self._method, "max_bytes": str(self._limit)},
            )
        return data

    def _parsed(self, data: bytes) -> Any:
        if self._deserializer is None:
            return data
        try:
            request = self._deserializer(data)
        except (DecodeError, ValueError):
            # Not in the parser's own words.
            raise InvalidArgumentError(
                f"the request's bytes are no valid message of {self._method}",
                reason="MALFORMED_REQUEST",
                metadata={"method": self._method},
            ) from None
        if isinstance(request, Message):
            self._check(request)
        return request
