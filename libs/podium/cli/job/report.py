"""`podium job report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from podium.cli.completers import complete_jobs, job_argument
from podium.cli.connection import connected
from podium.cli.output import note

if TYPE_CHECKING:
    from podium.sdk import AsyncClient


@click.command(short_help="Write one HTML page about a job.")
@job_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write. [default: JOB.html]",
)
@click.option(
    "--episodes", type=click.IntRange(0, 50), default=3, show_default=True, help="Pairs to show."
)
@click.option(
    "--with",
    "other",
    metavar="JOB",
    default="",
    shell_complete=complete_jobs,
    help="Another job to compare it with.",
)
@connected
async def report(
    client: AsyncClient, job: str, output: Path | None, episodes: int, other: str
) -> None:
    """Write one HTML page about a job: curves, evaluations, and episodes before and after.

    The page needs no network and no other file.
    """
    from podium.cli.html_report import collect, render
    from podium.cli.trajectory.files import check_place

    target = output or Path(f"{job}.html")
    check_place(target)
    page = render(await collect(client, job, episodes=episodes, other=other))
    target.write_text(page, encoding="utf-8")
    note(f"wrote {target} ({len(page) / 1024:.0f} KiB)")
    click.echo(str(target))
