"""A click group that imports a command only when it is run."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """`lazy` maps a command's name to (`module:attribute`, one-line help).

    The line is what the group's help shows, so that listing the commands
    imports none of them.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        return [*self.lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the command."""
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self.lazy[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}:{attribute} is no command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, naming the nearest command for one that does not exist."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = nearest(args[0], self.list_commands(ctx))
            if near and "Did you mean" not in error.message:
                raise click.UsageError(f"{error.message} Did you mean '{near}'?", ctx) from None
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """As click's, without importing the commands: somebody waits at a prompt."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=text)
            for name, (_, text) in self.lazy.items()
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands without importing them."""
        rows = [(name, text) for name, (_, text) in self.lazy.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def nearest(word: str, known: list[str]) -> str:
    """The known word that is most like `word`; empty when none is."""
    import difflib

    return next(iter(difflib.get_close_matches(word, known, n=1)), "")
