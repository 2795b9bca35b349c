"""A channel whose certificate may be renewed while it is used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from podium.core.tasks import cancel_and_wait
from podium.kit.rpc.tls import Tls

# What may still run on the channel that showed the old certificate.
_GRACE_SECONDS = 1800.0


class RenewingChannel(grpc.aio.Channel):
    """Each call goes through a channel that shows the certificate in force when it begins.

    gRPC's own channels show to their end what they were made with, to a peer that they connect to
    anew as well.
    """

    def __init__(self, current: Callable[[], Tls], dial: Callable[[Tls], grpc.aio.Channel]) -> None:
        """`current` is asked at each call; `dial` makes a channel for what it says."""
        self._current = current
        self._dial = dial
        self._shown = current()
        self._channel = dial(self._shown)
        self._old: dict[asyncio.Task[None], grpc.aio.Channel] = {}

    def now(self) -> grpc.aio.Channel:
        """The channel for a call that begins now."""
        tls = self._current()
        if tls is not self._shown:
            old, self._shown, self._channel = self._channel, tls, self._dial(tls)
            task = asyncio.get_running_loop().create_task(old.close(_GRACE_SECONDS))
            self._old[task] = old
            task.add_done_callback(self._old.pop)
        return self._channel

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("unary_unary", args, kwargs)

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("unary_stream", args, kwargs)

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("stream_unary", args, kwargs)

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("stream_stream", args, kwargs)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self.now().get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self.now().wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self.now().channel_ready()

    async def close(self, grace: float | None = None) -> None:
        old = dict(self._old)
        await cancel_and_wait(*old)
        await asyncio.gather(*(one.close(grace) for one in (self._channel, *old.values())))

    async def __aenter__(self) -> RenewingChannel:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    def _method(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        made: tuple[grpc.aio.Channel, Any] | None = None

        def call(*call_args: Any, **call_kwargs: Any) -> Any:
            nonlocal made
            channel = self.now()
            if made is None or made[0] is not channel:
                made = channel, getattr(channel, kind)(*args, **kwargs)
            return made[1](*call_args, **call_kwargs)

        return call
