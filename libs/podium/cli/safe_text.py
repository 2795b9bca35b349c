"""Text of strangers on a terminal: what models and environments say is shown, never obeyed."""

from __future__ import annotations

import re

# C0, DEL and C1 but for tab and newline; halves of surrogate pairs; line and paragraph separators;
# and what turns the direction of writing, so that a line reads otherwise than it is.
_HOSTILE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_LINES = re.compile("[\n\t]")


def visible(text: str) -> str:
    """`text` with control characters written out, as in `\\x1b[2J`; lines and tabs stay."""
    return _HOSTILE.sub(_escaped, text)


def one_line(text: str) -> str:
    """As `visible`, with lines and tabs written out too."""
    return _LINES.sub(_escaped, visible(text))


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode()
