"""Opaque page tokens, bound to the arguments that they were made for."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import Any, TypeVar

from podium.core.errors import InvalidArgumentError, Violation

T = TypeVar("T")

# What a column of the databases holds; a greater number cannot be compared with one.
_INTEGERS = range(-(2**63), 2**63)


def encode_page_token(position: list[Any], arguments: list[Any]) -> str:
    """A token that continues after `position` of a listing with these arguments."""
    text = json.dumps([_digest(arguments), position], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_page_token(
    token: str, arguments: list[Any], kinds: Sequence[type[int] | type[str]]
) -> list[Any] | None:
    """The position in a token; None for an empty token.

    Anybody can make a token with the right digest, so the position is held to what a
    listing's own would be.

    Args:
        kinds: the type of each part of the position.

    Raises:
        InvalidArgumentError: not a token of ours for these arguments.
    """
    if not token:
        return None
    try:
        padded = token + "=" * (-len(token) % 4)
        digest, position = json.loads(base64.urlsafe_b64decode(padded))
        if digest == _digest(arguments) and _is_position(position, kinds):
            return list(position)
    except (ValueError, TypeError, RecursionError):
        pass
    raise InvalidArgumentError(
        violations=[
            Violation("page_token", "not a token that this server made for these arguments")
        ]
    )


def page_of(
    rows: Sequence[T], size: int, token: str, arguments: list[Any]
) -> tuple[Sequence[T], str]:
    """A page of what is in memory, and the next page's token; empty past the end.

    Raises:
        InvalidArgumentError: not a token of ours for these arguments.
    """
    position = decode_page_token(token, arguments, [int]) or [0]
    start = max(0, position[0])
    end = start + size
    return rows[start:end], encode_page_token([end], arguments) if end < len(rows) else ""


def _is_position(position: object, kinds: Sequence[type]) -> bool:
    return (
        isinstance(position, list)
        and [type(part) for part in position] == list(kinds)
        and all(map(_is_storable, position))
    )


def _is_storable(part: int | str) -> bool:
    """Whether a database could have given it."""
    if isinstance(part, int):
        return part in _INTEGERS
    # JSON can hold half of a surrogate pair, which is no character of UTF-8.
    return "\0" not in part and not any("\ud800" <= each <= "\udfff" for each in part)


def _digest(arguments: list[Any]) -> str:
    return hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()[:16]
