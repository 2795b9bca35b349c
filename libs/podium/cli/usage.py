"""`podium usage`: what jobs and projects have used."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from podium.cli.connection import connected
from podium.cli.output import emit_list, note, output_option

if TYPE_CHECKING:
    from podium.sdk import AsyncClient

_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


class Since(click.ParamType[datetime]):
    """`24h`, `7d`, `2w`, or a date or time as ISO 8601 has it."""

    name = "time"

    def convert(
        self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """A point in time, of this machine's zone where the text names none."""
        if isinstance(value, datetime):
            return value
        ago = re.fullmatch(r"([0-9]{1,5})([hdw])", value)
        if ago:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        try:
            return datetime.fromisoformat(value).astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f"got {value!r}; allowed are such as 24h, 7d, 2w, 2026-11-01", param, ctx)


@click.command(short_help="Show what jobs and projects have used.")
@click.option("--project", default="", help="Only this project's.")
@click.option("--since", type=Since(), help="Only from then on: 24h, 7d, 2w, or a date.")
@click.option("--by-project", is_flag=True, help="One line a project instead of one a job.")
@output_option
@connected
async def usage(
    client: AsyncClient, project: str, since: datetime | None, by_project: bool, output: str
) -> None:
    """Show what jobs have used, newest first; those that were deleted too.

    Usage is kept by the hour. GPUs have a cost where the installation names the price of an hour,
    judges where they have prices. What a project with a budget has used of it this month is told on
    stderr.
    """
    from podium.cli.views import PROJECT_USAGE, USAGE, budget

    rows = client.jobs.usage(project=project, since=since, by_project=by_project)
    emit_list([row async for row in rows], PROJECT_USAGE if by_project else USAGE, output)
    for each in await client.jobs.budgets(project=project):
        for line in budget(each):
            note(line)
