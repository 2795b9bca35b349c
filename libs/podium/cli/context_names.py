"""Names of saved installations, as a shell completes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def complete_contexts(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Installations that 'podium login' saved."""
    from click.shell_completion import CompletionItem

    try:
        from podium.sdk.connection import contexts

        saved = sorted(contexts.load().contexts)
    except Exception:
        return []
    return [CompletionItem(name) for name in saved if name.startswith(incomplete)]
