"""How a stream of answers is written: lines for curl, envelopes for clients of Connect."""

from __future__ import annotations

import json
import struct

from podium.core.errors import InvalidArgumentError, PodiumError, UnimplementedError

from podium_console.web import replies
from podium_console.web.gateway import refusals

JSON, ENVELOPES = "application/json", "application/connect+json"
_HEAD = struct.Struct(">BI")
_COMPRESSED, _END = 1, 2


def line(message: bytes) -> bytes:
    """One message, or one error, a line."""
    return message + b"\n"


def envelope(message: bytes, flags: int = 0) -> bytes:
    """One message behind its flags and its length."""
    return _HEAD.pack(flags, len(message)) + message


def opened(body: bytes) -> bytes:
    """The one message of an enveloped request.

    Raises:
        InvalidArgumentError: it is not exactly one.
        UnimplementedError: it is compressed.
    """
    if len(body) < _HEAD.size:
        raise _broken(f"{len(body)} bytes, of which the head alone has {_HEAD.size}")
    flags, length = _HEAD.unpack_from(body)
    if flags & _COMPRESSED:
        raise UnimplementedError("requests are taken uncompressed alone")
    if flags or length != len(body) - _HEAD.size:
        raise _broken(f"flags {flags} and a length of {length} before {len(body) - _HEAD.size}")
    return body[_HEAD.size :]


def _broken(got: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"got {got}; allowed is one message in one envelope: a byte 0, four bytes of its length, "
        "the most significant first, and its JSON",
        reason="MALFORMED_REQUEST",
    )


def _last_line(error: PodiumError) -> bytes:
    return line(json.dumps({"error": refusals.plain(error)}).encode())


def _last_envelope(error: PodiumError) -> bytes:
    return envelope(json.dumps({"error": refusals.plain(error)}).encode(), _END)


LINES = replies.Framing(replies.LINES, problem=_last_line, idle=b"\n", drained=True)
"""JSON, a message a line; an empty one says that the stream lives, and the last one `error` where
it did not end well."""
CONNECT = replies.Framing(
    ENVELOPES, problem=_last_envelope, end=envelope(b"{}", _END), drained=True
)
"""The protocol's own, which has no word for a stream that lives."""
