"""Names made of text that people wrote."""

from __future__ import annotations

import re


def slug(text: str) -> str:
    """Its letters and digits, lower case, with a hyphen for all between; empty when it has none."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
