"""Why a TLS handshake fails, in words: gRPC's own name neither the certificate nor its names."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from podium.core.errors import UnavailableError

if TYPE_CHECKING:
    from podium.kit.rpc.tls import Tls

_SECONDS = 10.0
_PLAIN = ("WRONG_VERSION_NUMBER", "UNEXPECTED_MESSAGE", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER")
# The preface of HTTP/2 with empty settings: a server that takes the connection answers at once.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))


async def check(address: str, tls: Tls | None, server_name: str, service: str) -> None:
    """Shakes hands with the server of `service` at `host:port` once, as gRPC is about to.

    A server that cannot be reached at all passes: what to say about that, gRPC knows better.

    Args:
        address: where it listens.
        tls: the certificate to show, and whose to take; None if the call will be in plain text.
        server_name: whose certificate it must be; empty for the host of `address`.
        service: its name, for the message.

    Raises:
        UnavailableError: why the two cannot talk (TLS_HANDSHAKE).
    """
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_SECONDS):
            if tls is None:
                await _plain(host, port, service)
            else:
                await _secure(host, port, tls, server_name or host, service)
    except (OSError, TimeoutError, EOFError):
        return


async def _plain(host: str, port: str, service: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLError:
        return
    writer.close()
    raise _failed(service, "its port asks for TLS, and no certificate is given here")


async def _secure(host: str, port: str, tls: Tls, name: str, service: str) -> None:
    context = _context(tls)
    try:
        reader, writer = await asyncio.open_connection(
            host, port, ssl=context, server_hostname=name
        )
    except ssl.SSLCertVerificationError as error:
        raise _failed(service, await _mistrust(error, host, port, context, name)) from None
    except ssl.SSLError as error:
        if any(sign in str(error) for sign in _PLAIN):
            raise _failed(service, "its port is a plaintext port, which takes no TLS") from None
        raise _failed(service, f"TLS: {error.reason or error}") from None
    try:
        writer.write(_PREFACE)
        # A server of TLS 1.3 refuses a certificate only after the handshake; gRPC's just hangs up.
        taken = bool(await reader.read(1))
    except OSError:
        taken = False
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    if not taken:
        raise _failed(service, "it hung up after the handshake: it does not take this certificate")


async def _mistrust(
    error: ssl.SSLCertVerificationError, host: str, port: str, context: ssl.SSLContext, name: str
) -> str:
    if "mismatch" not in error.verify_message.lower():
        return f"its certificate is not signed by the given authorities ({error.verify_message})"
    # Trusted but for the name: once more, to read which names it has.
    context.check_hostname = False
    _, writer = await asyncio.open_connection(host, port, ssl=context)
    found: Any = writer.get_extra_info("peercert") or {}
    writer.close()
    names = ", ".join(value for _, value in found.get("subjectAltName", ())) or "no name"
    return f"its certificate is not for {name}; it is for {names}"


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=tls.authorities.decode("ascii", "replace"))
    # From 3.13 on Python asks certificates for more than gRPC does, which comes after this.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["h2"])
    # The ssl module reads a key from files alone.
    with tempfile.NamedTemporaryFile() as both:
        both.write(tls.key + b"\n" + tls.certificate)
        both.flush()
        context.load_cert_chain(both.name)
    return context


def _failed(service: str, why: str) -> UnavailableError:
    return UnavailableError(
        f"{service} cannot be reached: {why}",
        reason="TLS_HANDSHAKE",
        metadata={"peer": service},
    )
