"""Channels to other services."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from podium.core.errors import InvalidArgumentError, Violation
from podium.core.proxies import is_direct
from podium.kit.rpc.client_config import DEFAULT_MESSAGE_BYTES, channel_options
from podium.kit.rpc.client_interceptors import BeforeCall, UnaryInterceptor, client_interceptors
from podium.kit.rpc.renewing_channel import RenewingChannel
from podium.kit.rpc.tls import Tls
from podium.kit.rpc.unary_calls import InterceptedChannel
from podium.kit.rpc.watched_files import Token

if TYPE_CHECKING:
    from podium.kit.rpc.settings import ServerSettings


def connect(
    address: str,
    *,
    default_timeout: float | None = 30.0,
    token: Token = "",
    before_call: BeforeCall | None = None,
    tls: Tls | None = None,
    server_name: str = "",
    max_message_bytes: int = DEFAULT_MESSAGE_BYTES,
    direct: bool = False,
) -> grpc.aio.Channel:
    """A channel to `host:port`, balanced over every address that its name has.

    Calls with one response get `default_timeout` seconds unless they name
    their own `timeout`; calls with a stream of responses get none. Methods
    whose contract says so are repeated when the peer is UNAVAILABLE: those of
    every contract module that is imported by now.

    Args:
        token: bearer token to present with every call, or what is asked for it before each. Never
            sent unless given: an address may be a user's own server.
        before_call: awaited before each call, and not within its deadline; it gives the token, and
            what it raises is what the call raises.
        tls: the certificate to show, and whose to take; None for plain text. Never given unless
            the peer is one of this installation, as with the token. When the files that it was
            loaded from change, later calls show the new certificate.
        server_name: whose certificate it must be, where that is not the address' host.
        direct: never by a proxy, as between the services of one installation. Elsewhere gRPC takes
            the one of the environment, but for addresses that no proxy serves.

    Raises:
        InvalidArgumentError: the address is neither host:port nor a gRPC target.
    """
    target = _target(address)
    options = channel_options(max_message_bytes, direct=direct or _is_direct(target))
    interceptors = client_interceptors(address, default_timeout, token, before_call)

    def intercepted(channel: grpc.aio.Channel) -> grpc.aio.Channel:
        # Who awaits something before a call needs gRPC's own interceptors.
        if before_call is not None:
            return channel
        return InterceptedChannel(channel, UnaryInterceptor(address, default_timeout, token))

    if tls is None:
        return intercepted(grpc.aio.insecure_channel(target, options, interceptors=interceptors))
    if server_name:
        options.append(("grpc.ssl_target_name_override", server_name))

    def dial(tls: Tls) -> grpc.aio.Channel:
        credentials = tls.channel_credentials()
        channel = grpc.aio.secure_channel(target, credentials, options, interceptors=interceptors)
        return intercepted(channel)

    return dial(tls) if tls.files is None else RenewingChannel(tls.files.current, dial)


def connect_blocking(address: str, tls: Tls | None = None, server_name: str = "") -> grpc.Channel:
    """A channel for a thread without an event loop. Its calls take token and timeout themselves.

    Args:
        tls, server_name: as for `connect`.

    Raises:
        InvalidArgumentError: the address is neither host:port nor a gRPC target.
    """
    target = _target(address)
    options = channel_options(DEFAULT_MESSAGE_BYTES, direct=_is_direct(target))
    if tls is None:
        return grpc.insecure_channel(target, options)
    if server_name:
        options.append(("grpc.ssl_target_name_override", server_name))
    return grpc.secure_channel(target, tls.channel_credentials(), options)


def connect_peer(settings: ServerSettings, address: str, server_name: str = "") -> grpc.aio.Channel:
    """A channel of a service to another of its installation, as its settings say.

    Args:
        server_name: as for `connect`.

    Raises:
        InvalidArgumentError: as `connect`, or a file of its certificates cannot be read.
    """
    return connect(
        address,
        token=settings.peer_token(),
        tls=settings.tls(),
        server_name=server_name,
        max_message_bytes=settings.max_message_bytes,
        direct=True,
    )


def _target(address: str) -> str:
    if "://" in address or address.startswith(("unix:", "ipv4:", "ipv6:")):
        return address
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidArgumentError(
            violations=[Violation("address", f"got {address!r}; allowed is host:port")]
        )
    return f"dns:///{address}"


def _is_direct(target: str) -> bool:
    """Whether no proxy leads to any of a target's addresses, `dns:///host:port` or like it."""
    hosts = target.rpartition("/")[2].removeprefix("ipv4:").removeprefix("ipv6:")
    return all(is_direct(each.rpartition(":")[0] or each) for each in hosts.split(","))
