"""Turns what a gRPC client raises back into Podium's exceptions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from podium.core.errors import (
    PermissionDeniedError,
    PodiumError,
    UnauthenticatedError,
    UnavailableError,
)
from podium.kit.rpc.details import cut, decode
from podium.kit.rpc.ended import is_broken_write
from podium.kit.rpc.status import exception_of

_FINISHED = "RPC already finished."
# What failed handshakes mean, by gRPC's words for them.
_HANDSHAKES = {
    "hostname verification check failed": "its certificate is not for the name it is called by",
    "certificate_verify_failed": "its certificate is not signed by the given authorities, or not "
    "valid now",
    "wrong_version_number": "its port is a plaintext port, which takes no TLS",
}
# The words of gRPC's transport that say why, without naming addresses.
_CAUSES = (
    "connection refused",
    "connection reset",
    "connection timed out",
    "socket closed",
    "dns resolution failed",
    "too_many_pings",
    "handshake",
)
_DETAILS_BYTES = 512
_OF_A_PEER = (UnavailableError, UnauthenticatedError, PermissionDeniedError)


@contextmanager
def rpc_errors(peer: str) -> Iterator[None]:
    """Wraps awaits on calls and streams of a peer, named as people know it.

    Cancellation of the caller's own task passes through untouched.

    Raises:
        PodiumError: the exception of the status code, with the reason,
            metadata and violations that the server sent.
    """
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise from_rpc(error, peer) from error
    except asyncio.InvalidStateError as error:
        # A write raises this and hides the status; a read would have shown it.
        if str(error) != _FINISHED:
            raise
        raise UnavailableError(f"{peer} ended the stream", metadata={"peer": peer}) from error


def from_rpc(error: grpc.aio.AioRpcError, peer: str) -> PodiumError:
    """The exception of a finished call."""
    known = decode(error)
    if known is not None:
        if isinstance(known, UnavailableError):
            known.message = f"{peer} is unavailable: {known.message}"
            known.args = (known.message,)
        if isinstance(known, _OF_A_PEER):
            # Who says so: a service that hands the error on is not whom it is about.
            known.metadata.setdefault("peer", peer)
        return known
    code = error.code()
    details = error.details() or ""
    metadata = {"peer": peer}
    if code is grpc.StatusCode.UNAVAILABLE:
        # The raw text names addresses; those stay in the chained exception.
        found = details.lower()
        cause = next((words for sign, words in _HANDSHAKES.items() if sign in found), "")
        cause = cause or next((words for words in _CAUSES if words in found), "")
        text = f" ({cause})" if cause else ""
        return UnavailableError(f"{peer} cannot be reached{text}", metadata=metadata)
    if is_broken_write(error):
        return UnavailableError(f"{peer} ended the stream", metadata=metadata)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return exception_of(code)(f"{peer} did not answer in time", metadata=metadata)
    if code is grpc.StatusCode.CANCELLED:
        return exception_of(code)(f"{peer} cancelled the call", metadata=metadata)
    return exception_of(code)(f"{peer}: {cut(details, _DETAILS_BYTES)}", metadata=metadata)
