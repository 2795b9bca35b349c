"""`podium trajectory show`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from podium.cli.connection import connected
from podium.cli.ranges import Range, RangeType

if TYPE_CHECKING:
    from podium.sdk import AsyncClient


@click.command(short_help="Read an episode turn by turn.")
@click.argument("trajectory", metavar="ID")
@click.option(
    "--turns",
    type=RangeType(negative=True),
    metavar="A:B",
    help="Only these turns: 3, 3:5, 3: or -2: for the last two; 0 is what came before turn 1.",
)
@click.option("--tokens", is_flag=True, help="Token ids, pieces of text and log-probs too.")
@click.option(
    "--tokenizer",
    default="",
    metavar="MODEL",
    help="Whose pieces --tokens shows: a name or folder. [default: the job's base model, if it is "
    "here]",
)
@click.option("--no-pager", is_flag=True, help="Print at once, on a terminal too.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(("text", "json", "yaml")),
    default="text",
    show_default=True,
    help="How to print it.",
)
@connected
async def show(
    client: AsyncClient,
    trajectory: str,
    turns: Range | None,
    tokens: bool,
    tokenizer: str,
    no_pager: bool,
    output: str,
) -> None:
    """Read an episode turn by turn. ID is as 'podium trajectory list JOB' has it: JOB/s3/g0/t1.

    First its rewards, the judge's words and how it ended, then every message, with tools, calls
    and the reward of each turn, and what was raised. --tokens adds each sampled token with the
    version of the weights that sampled it. On a terminal it opens in the pager ($PAGER, or less).
    Control characters of what was said are written out, as in \\x1b.

    -o json and yaml have the whole episode, tokens included.
    """
    from podium.cli.trajectory.listing import find

    job = trajectory.partition("/")[0]
    if job == trajectory:
        raise click.UsageError(
            f"got {trajectory!r}; an episode's id is JOB/s3/g0/t1, or JOB/v3-sampled/g0/t1 of an "
            f"evaluation: 'podium trajectory list {job}' lists them"
        )
    item = await find(client, job, trajectory)
    if output != "text":
        from podium.cli.output import data
        from podium.core.contract import to_plain

        data(to_plain(item), output)
        return
    from podium.cli.episodes import episode_lines
    from podium.cli.pieces import Pieces

    pieces = None
    if tokens:
        model = tokenizer or (await client.jobs.get(job)).spec.base_model
        pieces = Pieces.of_model(model, asked=bool(tokenizer))
    lines = episode_lines(item, turns=turns, pieces=pieces)
    _print((f"{line}\n" for line in lines), paged=not no_pager)


def _print(lines: Iterator[str], *, paged: bool) -> None:
    if paged and sys.stdout.isatty() and sys.stdin.isatty():
        # What fits on one screen needs no pager.
        os.environ.setdefault("LESS", "FRX")
        click.echo_via_pager(lines)
        return
    for line in lines:
        click.echo(line, nl=False)
