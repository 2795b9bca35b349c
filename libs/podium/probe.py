"""`python -m podium.probe HOST:PORT [SERVICE]`: an exec probe that asks a health port.

A kubelet starts it every few seconds in every pod, so it speaks the one call of gRPC's health
protocol by itself: to import gRPC costs five times as much CPU as all else that it does. Frames
are RFC 9113's, the call gRPC's "PROTOCOL-HTTP2" and `grpc.health.v1`.
"""

from __future__ import annotations

import socket
import sys
import time

_SECONDS = 8.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM = _ACK = 1
_END_HEADERS = 4
_PADDED = 8
_LONGEST_FRAME = 16384
"""Nobody may send a longer one unasked."""
_STREAM = 1
_SERVING = 1
_STATUS = {0: "UNKNOWN", _SERVING: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


def main(arguments: list[str]) -> int:
    """0 when the service serves, 1 when it does not, 2 when the arguments are wrong."""
    host, _, port = arguments[0].rpartition(":") if arguments else ("", "", "")
    if len(arguments) not in (1, 2) or not host or not port.isdecimal():
        print("usage: python -m podium.probe HOST:PORT [SERVICE]", file=sys.stderr)
        return 2
    address, service = arguments[0], arguments[1] if len(arguments) == 2 else ""
    try:
        status = _ask(host.strip("[]"), int(port), service)
    except (OSError, ValueError) as error:
        print(f"{address}: {str(error) or type(error).__name__}", file=sys.stderr)
        return 1
    print(f"{address}: {_STATUS.get(status, status)}", file=sys.stderr)
    return 0 if status == _SERVING else 1


def _ask(host: str, port: int, service: str) -> int:
    """The status of a service.

    Raises:
        OSError: nobody answers there, or not in time.
        ValueError: the answer is none.
    """
    end = time.monotonic() + _SECONDS
    name = service.encode()
    request = b"\x0a" + _varint(len(name)) + name if name else b""
    message = b"\0" + len(request).to_bytes(4, "big") + request
    with socket.create_connection((host, port), timeout=_SECONDS) as connection:
        connection.sendall(
            _PREFACE
            + _frame(_SETTINGS, 0, 0, b"")
            + _frame(_HEADERS, _END_HEADERS, _STREAM, _headers(f"{host}:{port}".encode()))
            + _frame(_DATA, _END_STREAM, _STREAM, message)
        )
        answer = b""
        while True:
            kind, flags, stream, payload = _read_frame(connection, end)
            if kind in (_SETTINGS, _PING) and not flags & _ACK:
                echoed = payload if kind == _PING else b""
                connection.sendall(_frame(kind, _ACK, 0, echoed))
            elif kind == _GOAWAY or (kind == _RST_STREAM and stream == _STREAM):
                raise ValueError("the call was broken off")
            elif stream == _STREAM and kind == _DATA:
                answer += _unpadded(payload) if flags & _PADDED else payload
                if len(answer) >= 5 and len(answer) >= 5 + int.from_bytes(answer[1:5], "big"):
                    return _status_of(answer[5:])
            # Without a message it is a refusal, whose words are in compressed headers.
            if stream == _STREAM and kind in (_DATA, _HEADERS) and flags & _END_STREAM:
                raise ValueError("the call was refused: the service is not known there")


def _headers(authority: bytes) -> bytes:
    """HPACK (RFC 7541): two whole entries of its static table, and literals that it keeps none of.

    No string here is long enough for a length of more than one byte.
    """
    method_post, scheme_http = b"\x83", b"\x86"
    return (
        method_post
        + scheme_http
        + b"\x04"
        + _text(b"/grpc.health.v1.Health/Check")
        + b"\x01"
        + _text(authority)
        + b"\x0f\x10"
        + _text(b"application/grpc")
        + b"\0"
        + _text(b"te")
        + _text(b"trailers")
    )


def _text(text: bytes) -> bytes:
    if len(text) > 126:
        raise ValueError("the host's name is too long")
    return bytes([len(text)]) + text


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
    )


def _read_frame(connection: socket.socket, end: float) -> tuple[int, int, int, bytes]:
    head = _read(connection, 9, end)
    length = int.from_bytes(head[:3], "big")
    if length > _LONGEST_FRAME:
        raise ValueError("what answers there is no gRPC")
    payload = _read(connection, length, end)
    return head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF, payload


def _read(connection: socket.socket, count: int, end: float) -> bytes:
    found = b""
    while len(found) < count:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no answer in {_SECONDS:g} s")
        connection.settimeout(left)
        part = connection.recv(count - len(found))
        if not part:
            raise ConnectionError("the connection was closed")
        found += part
    return found


def _unpadded(payload: bytes) -> bytes:
    return payload[1 : len(payload) - payload[0]]


def _varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def _status_of(message: bytes) -> int:
    """Of a HealthCheckResponse, whose one field is a small enumeration."""
    if not message:
        return 0
    if len(message) != 2 or message[0] != 0x08:
        raise ValueError("the answer is no HealthCheckResponse")
    return message[1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
