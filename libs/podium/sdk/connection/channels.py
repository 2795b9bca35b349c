"""Channels to the services of one installation, directly or through an API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from podium.core.errors import FailedPreconditionError
from podium.core.proxies import grpc_asks_proxy
from podium.kit.rpc import connect
from podium.kit.rpc.client import connect_blocking
from podium.kit.rpc.watched_files import token_now
from podium.sdk.connection import handshake
from podium.sdk.connection.addresses import ENVIRONMENT, Addresses
from podium.sdk.connection.forward import Forward
from podium.sdk.connection.release import Release, describe

if TYPE_CHECKING:
    import grpc

PORTS = dict(zip(ENVIRONMENT, range(50051, 50056), strict=True))
"""The ports of the chart's Services."""
FORWARDED_NAME = "localhost"
"""Whose certificate a service shows through `kubectl port-forward`, unless another is named."""


class Channels:
    """Opens each channel, and each port-forward, when it is first used."""

    def __init__(self, addresses: Addresses, timeout: float) -> None:
        """`timeout` is the deadline of one unary call, in seconds."""
        self._addresses = addresses
        self._timeout = timeout
        self._release = Release(addresses.kubernetes) if addresses.kubernetes else None
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._forwards: dict[tuple[str, int], Forward] = {}

    def channel(self, service: str) -> grpc.aio.Channel:
        """A channel to a service.

        Raises:
            FailedPreconditionError: it has no address.
        """
        address = self._address(service)
        key = address or service
        if key not in self._channels:
            self._channels[key] = (
                self._direct(address, service)
                if address
                else self._forwarded(self._forward(service, PORTS[service]), service)
            )
        return self._channels[key]

    def service(self, service: str) -> tuple[Callable[[], grpc.aio.Channel], str]:
        """Opens its channel when it is called, and says where that is, for errors."""
        address: str = getattr(self._addresses, service)
        release = self._addresses.kubernetes
        place = f" at {address}" if address else f" of {describe(release)}" if release else ""
        if address and _is_proxied(address):
            place += ", by the environment's proxy,"
        return lambda: self.channel(service), place

    async def http(self, service: str, port: int) -> str:
        """`host:port` of a service's HTTP port, for clients that know no channels.

        Raises:
            FailedPreconditionError: it has no address.
            PodiumError: why it cannot be reached.
        """
        if address := self._address(service):
            return f"{address.rpartition(':')[0]}:{port}"
        forward = self._forward(service, port)
        await forward.open()
        forward.keep()
        return forward.address

    async def blocking(self, service: str) -> tuple[grpc.Channel, str]:
        """A channel to a service for a thread, and the bearer token of its calls.

        Raises:
            FailedPreconditionError: it has no address.
            PodiumError: why it cannot be reached.
        """
        token = await self.token()
        tls, name = self._addresses.tls, self._addresses.server_name
        if address := self._address(service):
            return connect_blocking(address, tls, name), token
        forward = self._forward(service, PORTS[service])
        await forward.open()
        forward.keep()
        return connect_blocking(forward.address, tls, name or FORWARDED_NAME), token

    async def close(self) -> None:
        """Closes every channel and ends every port-forward. Idempotent."""
        channels, self._channels = self._channels, {}
        forwards, self._forwards = self._forwards, {}
        for channel in channels.values():
            await channel.close()
        for forward in forwards.values():
            await forward.close()

    def _address(self, service: str) -> str:
        address: str = getattr(self._addresses, service)
        if not address and self._release is None:
            raise FailedPreconditionError(
                f"{self._addresses.source} names no address of the {service} service; "
                f"set {ENVIRONMENT[service]}",
                reason="NO_ADDRESS",
                metadata={"service": service},
            )
        return address

    def _forward(self, service: str, port: int) -> Forward:
        assert self._release is not None
        release = self._release
        if (service, port) not in self._forwards:
            self._forwards[service, port] = Forward(
                release.kubectl, lambda: release.service(service), port
            )
        return self._forwards[service, port]

    def _direct(self, address: str, service: str) -> grpc.aio.Channel:
        tls, name = self._addresses.tls, self._addresses.server_name
        # The check goes to the address itself, which a proxy may be the only way to.
        checked = tls is None or _is_proxied(address)

        async def before_call() -> str:
            nonlocal checked
            if not checked:
                await handshake.check(address, tls, name, service)
                checked = True
            return await self.token()

        return connect(
            address,
            default_timeout=self._timeout,
            token=self._addresses.token,
            tls=tls,
            server_name=name,
            before_call=before_call if tls or self._release is not None else None,
        )

    def _forwarded(self, forward: Forward, service: str) -> grpc.aio.Channel:
        tls, name = self._addresses.tls, self._addresses.server_name or FORWARDED_NAME

        async def before_call() -> str:
            token = await self.token()
            if await forward.open():
                await forward.connect(
                    channel, lambda: handshake.check(forward.address, tls, name, service)
                )
            return token

        channel = connect(
            forward.address,
            default_timeout=self._timeout,
            tls=tls,
            server_name=name if tls else "",
            before_call=before_call,
        )
        return channel

    async def token(self) -> str:
        """The bearer token of all services: what the context gives, else the release's Secret."""
        if self._addresses.token or self._release is None:
            return token_now(self._addresses.token)
        return await self._release.token()


def _is_proxied(address: str) -> bool:
    return grpc_asks_proxy(address.rpartition(":")[0].rpartition("/")[2])
