"""From when until when a certificate is valid, read from its PEM."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime

_FIRST = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
# Tags of X.690 and RFC 5280.
_VERSION = 0xA0
_TIMES = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
_LONG = 0x80


def validity(pem: bytes) -> tuple[datetime, datetime]:
    """Of the first certificate.

    Raises:
        ValueError: there is none, or it is none.
    """
    found = _FIRST.search(pem)
    if found is None:
        raise ValueError("there is no certificate")
    try:
        return _read(ssl.PEM_cert_to_DER_cert(found[0].decode("ascii")))
    except (IndexError, KeyError) as error:
        raise ValueError("what should be a certificate is none") from error


def _read(encoded: bytes) -> tuple[datetime, datetime]:
    (_, certificate), *_ = _elements(encoded)
    (_, signed), *_ = _elements(certificate)
    # Serial number, algorithm and issuer come first, and before them the version, if it is told.
    fields = [value for tag, value in _elements(signed) if tag != _VERSION]
    begin, end = (_time(tag, value) for tag, value in _elements(fields[3]))
    return begin, end


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each, one after the other."""
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & _LONG:
            size = length & ~_LONG
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        yield tag, data[at : at + length]
        at += length


def _time(tag: int, value: bytes) -> datetime:
    return datetime.strptime(value.decode("ascii"), _TIMES[tag]).replace(tzinfo=UTC)
