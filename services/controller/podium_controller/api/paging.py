"""Opaque page tokens that only fit the call that they were made for."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from google.protobuf.message import Message
from podium.core.page_tokens import decode_page_token, encode_page_token


def encode(request: Message, cursor: Sequence[int | str]) -> str:
    """The token with which the same request goes on after `cursor`."""
    return encode_page_token(list(cursor), _arguments(request))


def decode(request: Message, kinds: Sequence[type[int] | type[str]]) -> list[int | str] | None:
    """The cursor of the request's `page_token`; None when it has none.

    Args:
        kinds: the type of each part of the cursor.

    Raises:
        InvalidArgumentError: this server did not make it for these arguments.
    """
    token: str = request.page_token  # type: ignore[attr-defined]
    return decode_page_token(token, _arguments(request), kinds)


def _arguments(request: Message) -> list[str]:
    # The page's size may change between pages (AIP-158); everything else may not.
    arguments = type(request)()
    arguments.CopyFrom(request)
    arguments.ClearField("page_token")
    arguments.ClearField("page_size")
    body = arguments.SerializeToString(deterministic=True)
    return [request.DESCRIPTOR.full_name, base64.b64encode(body).decode()]
