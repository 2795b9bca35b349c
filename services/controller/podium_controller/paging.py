"""Opaque page tokens that only fit the call that they were made for."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence

from google.protobuf.message import Message
from podium.core.errors import InvalidArgumentError, Violation

_DIGEST_BYTES = 12


def encode(request: Message, cursor: Sequence[int | str]) -> str:
    """The token with which the same request goes on after `cursor`."""
    body = json.dumps(list(cursor), separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_digest(request, body) + body).decode().rstrip("=")


def decode(request: Message, kinds: Sequence[type]) -> list[int | str] | None:
    """The cursor of the request's `page_token`; None when it has none.

    Args:
        kinds: the type of each part of the cursor.

    Raises:
        InvalidArgumentError: this server did not make it for these arguments.
    """
    token: str = request.page_token  # type: ignore[attr-defined]
    if not token:
        return None
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True)
        given, body = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
        cursor: list[int | str] = json.loads(body)
    except (binascii.Error, ValueError):
        raise _foreign() from None
    if given != _digest(request, body) or [type(part) for part in cursor] != list(kinds):
        raise _foreign()
    return cursor


def _digest(request: Message, body: bytes) -> bytes:
    # The page's size may change between pages (AIP-158); everything else may not.
    arguments = type(request)()
    arguments.CopyFrom(request)
    arguments.ClearField("page_token")
    arguments.ClearField("page_size")
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES, person=b"podium.jobs.page")
    digest.update(request.DESCRIPTOR.full_name.encode())
    digest.update(arguments.SerializeToString(deterministic=True))
    digest.update(body)
    return digest.digest()


def _foreign() -> InvalidArgumentError:
    return InvalidArgumentError(
        violations=[
            Violation(
                "page_token",
                "is not one that this server made for these arguments; begin without one",
            )
        ],
        reason="FOREIGN_PAGE_TOKEN",
    )
