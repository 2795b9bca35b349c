"""How wide text stands in a terminal: Chinese, Japanese, Korean and emoji take two columns."""

from __future__ import annotations

import re
import unicodedata

_CODES = re.compile(r"(\x1b\[[0-9;]*m)")


def columns(text: str) -> int:
    """Columns that a text without codes of colours takes."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def _columns_of(character: str) -> int:
    # Accents that stand on the letter before them, and what is not seen at all.
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def padded(text: str, width: int, *, right: bool = False) -> str:
    """The text filled up with blanks to a number of columns, `right` for numbers."""
    blanks = " " * max(0, width - columns(text))
    return blanks + text if right else text + blanks


def cut(text: str, width: int) -> str:
    """What of a line fits in so many columns, codes of colours not counted and all kept."""
    shown, left = [], width
    for part in _CODES.split(text):
        if _CODES.fullmatch(part):
            shown.append(part)
            continue
        for character in part:
            left -= _columns_of(character)
            if left < 0:
                break
            shown.append(character)
    return "".join(shown)
