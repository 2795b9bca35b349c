"""`podium completion bash|zsh|fish`: click's script, under a name that can be remembered."""

from __future__ import annotations

import click

VARIABLE = "_PODIUM_COMPLETE"


@click.command(short_help="Print a script that completes commands in a shell.")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print a script that has SHELL complete commands, options, jobs and saved installations.

    \b
    bash   eval "$(podium completion bash)"       in ~/.bashrc
    zsh    eval "$(podium completion zsh)"        in ~/.zshrc, after compinit
    fish   podium completion fish > ~/.config/fish/completions/podium.fish

    Names of jobs are asked of the installation that the command would talk to; where none answers
    within a second there are none. Bash must be 4.4 or newer.
    """
    from click.shell_completion import get_completion_class

    from podium.cli.main import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"this version of click completes nothing in {shell}")
    click.echo(kind(cli, {}, "podium", VARIABLE).source())
