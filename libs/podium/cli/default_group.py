"""A click group one of whose commands need not be named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from podium.cli.lazy import LazyGroup


class DefaultGroup(LazyGroup):
    """What begins with no command's name is taken to be of the `default` one."""

    def __init__(self, *args: Any, default: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.default = default

    def named(self, words: Sequence[str], help_options: Sequence[str] = ("--help",)) -> list[str]:
        """The words with the command's name first, where they leave it out."""
        known = {*self.lazy, *self.commands, *help_options}
        return [self.default, *words] if words and words[0] not in known else list(words)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's, of words that may leave out the command's name."""
        return super().parse_args(ctx, self.named(args, ctx.help_option_names))
