"""Arguments of requests, checked: what is wrong is named, with what came and what is allowed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from podium.core.errors import InvalidArgumentError, RequestCancelledError, Violation
from starlette.requests import ClientDisconnect, Request

from podium_console.adapters.installation import Installation
from podium_console.settings import Settings
from podium_console.web.replies import LateError

_INTEGERS = 2**63


def installation(request: Request) -> Installation:
    """The services."""
    found: Installation = request.app.state.installation
    return found


def settings(request: Request) -> Settings:
    """The console's settings."""
    found: Settings = request.app.state.settings
    return found


def integer(
    request: Request, name: str, default: int | None = None, most: int = _INTEGERS - 1
) -> int | None:
    """A whole number of the query, from 0.

    Raises:
        InvalidArgumentError: it is none, or too large.
    """
    return whole_number(name, request.query_params.get(name, ""), default, most)


def size(request: Request, default: int, most: int) -> int:
    """How many rows a page shall have."""
    return integer(request, "size", default, most) or default


def whole_number(name: str, text: str, default: int | None, most: int) -> int | None:
    """A whole number as text.

    Raises:
        InvalidArgumentError: as `integer`.
    """
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= most):
        raise wrong(name, f"got {text[:40]!r}; allowed are whole numbers from 0 to {most}")
    return int(text)


async def whole_body(request: Request) -> bytes:
    """The bytes that were sent.

    Raises:
        LateError: they do not come.
        TooLargeError: there are too many.
        RequestCancelledError: whoever asked has gone.
    """
    seconds = settings(request).first_message_seconds
    try:
        async with asyncio.timeout(seconds):
            return await request.body()
    except TimeoutError:
        raise LateError(
            f"the body did not come within {seconds:g} seconds", reason="FIRST_MESSAGE_LATE"
        ) from None
    except ClientDisconnect:
        raise RequestCancelledError("whoever asked has gone") from None


async def body(request: Request) -> dict[str, Any]:
    """The JSON object that was sent.

    Raises:
        InvalidArgumentError: it is none.
        PodiumError: as `whole_body`.
    """
    try:
        found = json.loads(await whole_body(request) or b"{}")
    except (ValueError, RecursionError):
        raise wrong("body", "is not JSON") from None
    if not isinstance(found, dict):
        raise wrong("body", "must be a JSON object")
    return found


def text(found: dict[str, Any], name: str, most: int) -> str:
    """A text of a body; empty where there is none.

    Raises:
        InvalidArgumentError: it is no text, too long, or has half of a character.
    """
    value = found.get(name, "")
    if not isinstance(value, str) or len(value) > most:
        raise wrong(name, f"must be a text of at most {most} characters")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise wrong(name, "holds half of a surrogate pair, which is no character")
    return value


def number(found: dict[str, Any], name: str, default: float, least: float, most: float) -> float:
    """A number of a body.

    Raises:
        InvalidArgumentError: it is none, or out of range.
    """
    value = found.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise wrong(
            name, f"got {str(value)[:40]!r}; allowed are numbers from {least:g} to {most:g}"
        )
    return value


def wrong(field: str, words: str) -> InvalidArgumentError:
    """One violation."""
    return InvalidArgumentError(violations=[Violation(field, words)])
