"""Tables that are wider than the page scroll, by keys too: their frames take the focus."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx


def _focusable(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object
) -> None:
    if "body" in context:
        # Furo makes the frames as it renders the page, after every node is written.
        context["body"] = context["body"].replace(
            '<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'
        )


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx calls it."""
    app.connect("html-page-context", _focusable, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
