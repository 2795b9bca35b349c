"""`podium context list|use|delete`: the installations that `podium login` saved."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from podium.cli.context_names import complete_contexts
from podium.cli.output import data, note, output_option, table

if TYPE_CHECKING:
    from podium.sdk.connection.contexts import Context


@click.group(short_help="List, choose and delete saved installations.")
def context() -> None:
    """The installations that 'podium login' saved, by name.

    An address (--address, PODIUM_ADDRESS) goes before a context, and --context before
    PODIUM_ADDRESS; a context goes before what 'podium up' runs here.
    """


@context.command("list")
@output_option
def list_contexts(output: str) -> None:
    """List the saved installations, the one in use with a star."""
    from podium.sdk.connection import contexts

    saved = contexts.load()
    current = os.environ.get("PODIUM_CONTEXT", "") or saved.current
    if output == "table":
        rows = [
            ("*" if name == current else "", name, where(item), token_source(item))
            for name, item in saved.contexts.items()
        ]
        table(("", "NAME", "WHERE", "TOKEN"), rows)
        if address := os.environ.get("PODIUM_ADDRESS", ""):
            note(f"PODIUM_ADDRESS={address} goes before the context in use")
    elif output == "name":
        for name in saved.contexts:
            click.echo(name)
    else:
        data([_plain(name, item, name == current) for name, item in saved.contexts.items()], output)


@context.command()
@click.argument("name", required=False, shell_complete=complete_contexts)
@click.option("--none", is_flag=True, help="Use none: what 'podium up' runs here is found again.")
def use(name: str | None, none: bool) -> None:
    """Choose the installation that commands and clients talk to: NAME, or --none."""
    from podium.sdk.connection import contexts

    if none == bool(name):
        raise click.UsageError("name one context, or --none")
    saved = contexts.load()
    if name:
        saved.named(name)
    contexts.save(saved.model_copy(update={"current": name or ""}))
    note(f"in use: {name}" if name else "no context is in use")
    if variable := os.environ.get("PODIUM_CONTEXT", ""):
        note(f"PODIUM_CONTEXT={variable} goes first")


@context.command()
@click.argument("name", shell_complete=complete_contexts)
def delete(name: str) -> None:
    """Forget an installation, and its token if one is kept here. The installation stays."""
    from podium.sdk.connection import contexts

    saved = contexts.load()
    saved.named(name)
    left = {key: item for key, item in saved.contexts.items() if key != name}
    used = saved.current == name
    contexts.save(contexts.Contexts(current="" if used else saved.current, contexts=left))
    contexts.forget_token(name)
    note(f"forgot {name}" + ("; no context is in use now" if used else ""))


def where(item: Context) -> str:
    """Where a context leads, in words."""
    from podium.sdk.connection.release import describe

    direct = item.addresses.controller
    if direct or item.kubernetes is None:
        return direct or "nowhere"
    pool = f", pool {item.kubernetes.pool}" if item.kubernetes.pool else ""
    return describe(item.kubernetes) + pool


def token_source(item: Context) -> str:
    """Where a context's token comes from, in words."""
    if item.token_env:
        return f"variable {item.token_env}"
    if item.token_file:
        return f"file {item.token_file}"
    return "the release's Secret" if item.kubernetes else "none"


def _plain(name: str, item: Context, current: bool) -> dict[str, Any]:
    return {"name": name, "current": current, **item.model_dump(exclude_defaults=True)}
