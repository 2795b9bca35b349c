"""Columns of text that people read."""

from __future__ import annotations

from sqlalchemy import Dialect, Text
from sqlalchemy.types import TypeDecorator

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class FreeText(TypeDecorator[str]):
    """Text of any origin, such as the words of an exception in a user's environment.

    What no database can store in a text, U+0000 and halves of surrogate pairs, is replaced
    by U+FFFD: what tells of a failure must not be one.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """See SQLAlchemy's TypeDecorator."""
        return None if value is None else storable(value)


def storable(text: str) -> str:
    """The text without what no database can store."""
    if text.isascii() and "\0" not in text:
        return text
    return "".join(
        _REPLACEMENT if each == "\0" or "\ud800" <= each <= "\udfff" else each for each in text
    )
