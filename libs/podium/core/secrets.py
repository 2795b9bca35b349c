"""Tokens and keys as people store them: with a line's end, or more than one."""

from __future__ import annotations


def of_header(text: str) -> str:
    """A token or key without the white space around it, as a header carries it.

    Raises:
        ValueError: no header does; the message goes on after the name of what has it, and shows
            nothing of it.
    """
    token = text.strip()
    if len(token.splitlines()) > 1:
        raise ValueError("has several lines, and a token is one")
    if not (token.isascii() and token.isprintable()):
        raise ValueError("has a character that no token can have; allowed are those of ASCII")
    return token
