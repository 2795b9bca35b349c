"""The pods behind one name, each by itself: for calls that all of them must get.

A headless Service's name has an address a ready pod. A channel to the name balances calls over
them; what every pod must hear goes to each address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import Awaitable, Callable

import grpc

from podium.core.errors import UnavailableError
from podium.core.tasks import cancel_and_wait

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host, as `host:port`; none where the name has none now.

Raises UnavailableError: nobody says.
"""

Dial = Callable[[str, str], grpc.aio.Channel]
"""A channel to `host:port`; then the name in its certificate, empty for the host's own."""

_FORGET_SECONDS = 60.0
# What may still run on a channel whose pod is no longer named.
_GRACE_SECONDS = 1800.0


async def resolve_host(host: str, port: int) -> list[str]:
    """See `Resolve`. Of one family alone: a pod with two addresses is one pod."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in (socket.EAI_NONAME, socket.EAI_NODATA):
            return []
        raise UnavailableError(f"{host} cannot be resolved", reason="DNS") from error
    family = socket.AF_INET if any(f == socket.AF_INET for f, *_ in found) else socket.AF_INET6
    hosts = {str(where[0]) for f, _, _, _, where in found if f == family}
    return [_join(each, port) for each in sorted(hosts)]


def split_name(address: str) -> tuple[str, int] | None:
    """Host and port of `host:port` whose host is a name; None for anything else."""
    host, _, port = address.rpartition(":")
    return (host, int(port)) if port.isdecimal() and _is_name(host) else None


class Members:
    """Channels to what a name stands for: to all of it, and to each pod."""

    def __init__(self, address: str, dial: Dial, resolve: Resolve = resolve_host) -> None:
        """`address` is `host:port`; anything else that gRPC knows is one member. Nothing is dialled
        to a pod yet."""
        self.whole = dial(address, "")
        """Balanced over all."""
        self._address = address
        self._dial = dial
        self._resolve = resolve
        self._host, self._port = split_name(address) or ("", 0)
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._named_at: dict[str, float] = {}
        self._closing: dict[asyncio.Task[None], grpc.aio.Channel] = {}

    async def each(self) -> dict[str, grpc.aio.Channel]:
        """A channel to every pod that the name has now, by address.

        Raises:
            UnavailableError: nobody says what the name stands for.
        """
        if not self._host:
            return {self._address: self.whole}
        addresses = await self._resolve(self._host, self._port)
        now = time.monotonic()
        for address in addresses:
            self._named_at[address] = now
            if len(addresses) > 1 and address not in self._channels:
                self._channels[address] = self._dial(address, self._host)
        self._drop_forgotten(now)
        return {address: self._channels.get(address, self.whole) for address in addresses}

    async def close(self) -> None:
        """Closes every channel."""
        old = dict(self._closing)
        await cancel_and_wait(*old)
        for channel in (self.whole, *self._channels.values(), *old.values()):
            await channel.close()
        self._channels.clear()

    def _drop_forgotten(self, now: float) -> None:
        for address in [a for a, then in self._named_at.items() if now - then > _FORGET_SECONDS]:
            del self._named_at[address]
            channel = self._channels.pop(address, None)
            if channel is not None:
                task = asyncio.create_task(channel.close(_GRACE_SECONDS))
                self._closing[task] = channel
                task.add_done_callback(self._closing.pop)


def _is_name(host: str) -> bool:
    if not host or "/" in host or host.startswith(("unix:", "ipv4:", "ipv6:")):
        return False
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return True
    return False


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
