"""Channels to other services."""

from __future__ import annotations

import grpc

from podium.core.errors import InvalidArgumentError, Violation
from podium.rpc.client_config import DEFAULT_MESSAGE_BYTES, channel_options
from podium.rpc.client_interceptors import client_interceptors


def connect(
    address: str,
    *,
    default_timeout: float | None = 30.0,
    token: str = "",
    credentials: grpc.ChannelCredentials | None = None,
    max_message_bytes: int = DEFAULT_MESSAGE_BYTES,
) -> grpc.aio.Channel:
    """A channel to `host:port`, balanced over every address that its name has.

    Calls with one response get `default_timeout` seconds unless they name
    their own `timeout`; calls with a stream of responses get none. Methods
    whose contract says so are repeated when the peer is UNAVAILABLE: those of
    every contract module that is imported by now.

    Args:
        token: bearer token to present with every call. Never sent unless
            given: an address may be a user's own server.
        credentials: TLS; None for plaintext.

    Raises:
        InvalidArgumentError: the address is neither host:port nor a gRPC target.
    """
    target = _target(address)
    options = channel_options(max_message_bytes)
    interceptors = client_interceptors(address, default_timeout, token)
    if credentials is None:
        return grpc.aio.insecure_channel(target, options, interceptors=interceptors)
    return grpc.aio.secure_channel(target, credentials, options, interceptors=interceptors)


def _target(address: str) -> str:
    if "://" in address or address.startswith(("unix:", "ipv4:", "ipv6:")):
        return address
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidArgumentError(
            violations=[Violation("address", f"got {address!r}; allowed is host:port")]
        )
    return f"dns:///{address}"
