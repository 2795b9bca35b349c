"""What who reads without a mouse or a screen needs, and the theme leaves out.

Tables and code that are wider than the page scroll, by keys too: they take the focus. Captions of
the navigation are headings, and say of which level.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

# Furo makes both as it renders the page, after every node is written.
_PARTS = ("body", "furo_navigation_tree")
_INSTEAD = {
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
    "<pre>": '<pre tabindex="0">',
    'class="caption" role="heading">': 'class="caption" role="heading" aria-level="2">',
}


def reachable(html: str) -> str:
    """A part of a page whose scrolling boxes take the focus and whose headings have a level."""
    for bare, whole in _INSTEAD.items():
        html = html.replace(bare, whole)
    return html


def _page(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object) -> None:
    context.update({part: reachable(context[part]) for part in _PARTS if part in context})


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx calls it."""
    app.connect("html-page-context", _page, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
