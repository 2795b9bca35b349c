"""Unary calls without gRPC's interceptors.

gRPC runs an intercepted call as a task of its own around the call's task, with an object of its
own around the call's: a third of what a call costs. An agent loop makes one a turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

InterceptUnary = Callable[
    [grpc.aio.ClientCallDetails, Callable[[grpc.aio.ClientCallDetails], Any]], Any
]
"""Makes a call, given what its caller said and what begins it, and sees its end."""


class InterceptedChannel(grpc.aio.Channel):
    """A channel whose calls with one request and one response go through `intercept`."""

    def __init__(self, channel: grpc.aio.Channel, intercept: InterceptUnary) -> None:
        """`channel` has interceptors for the other kinds of calls."""
        self._channel = channel
        self._intercept = intercept

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        made: Any = self._channel.unary_unary(method, *args, **kwargs)

        def call(
            request: Any,
            *,
            timeout: float | None = None,
            metadata: Any = None,
            credentials: grpc.CallCredentials | None = None,
            wait_for_ready: bool | None = None,
            compression: grpc.Compression | None = None,
        ) -> Any:
            def begin(details: grpc.aio.ClientCallDetails) -> Any:
                return made(
                    request,
                    timeout=details.timeout,
                    metadata=details.metadata,
                    credentials=details.credentials,
                    wait_for_ready=details.wait_for_ready,
                    compression=compression,
                )

            details = grpc.aio.ClientCallDetails(
                method, timeout, metadata, credentials, wait_for_ready
            )
            return self._intercept(details, begin)

        return call

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        return self._channel.unary_stream(*args, **kwargs)

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        return self._channel.stream_unary(*args, **kwargs)

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        return self._channel.stream_stream(*args, **kwargs)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._channel.channel_ready()

    async def close(self, grace: float | None = None) -> None:
        await self._channel.close(grace)

    async def __aenter__(self) -> InterceptedChannel:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()
