"""What a narrow window scrolls."""

from __future__ import annotations

from html import escape


def scrolled(label: str, content: str, style: str = "panel scroll") -> str:
    """A region that has a name and that keys reach: nothing in it takes the focus."""
    return (
        f'<div class="{style}" tabindex="0" role="region" aria-label="{escape(label)}">'
        f"{content}</div>"
    )
