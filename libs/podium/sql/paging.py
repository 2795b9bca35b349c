"""Opaque page tokens, bound to the arguments that they were made for."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from podium.core.errors import InvalidArgumentError, Violation


def encode_page_token(position: list[Any], arguments: list[Any]) -> str:
    """A token that continues after `position` of a listing with these arguments."""
    text = json.dumps([_digest(arguments), position], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_page_token(token: str, arguments: list[Any]) -> list[Any] | None:
    """The position in a token; None for an empty token.

    Raises:
        InvalidArgumentError: not a token of ours for these arguments.
    """
    if not token:
        return None
    try:
        padded = token + "=" * (-len(token) % 4)
        digest, position = json.loads(base64.urlsafe_b64decode(padded))
        if digest == _digest(arguments) and isinstance(position, list):
            return position
    except (ValueError, TypeError):
        pass
    raise InvalidArgumentError(
        violations=[
            Violation("page_token", "not a token that this server made for these arguments")
        ]
    )


def _digest(arguments: list[Any]) -> str:
    return hashlib.sha256(json.dumps(arguments).encode()).hexdigest()[:16]
