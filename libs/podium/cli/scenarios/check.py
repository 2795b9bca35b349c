"""`podium scenarios check`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from podium.cli.output import data, table
from podium.cli.settings import read_settings


@click.command(short_help="Read scenarios as a job would.")
@click.argument("source")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the source, such as heldout or columns; VALUE is YAML.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(("table", "json", "yaml")),
    default="table",
    show_default=True,
    help="How to print the data.",
)
def check(source: str, settings: Sequence[str], output: str) -> None:
    """Read SOURCE, a file or the folder of a data set, and count its scenarios by split.

    Every fault is named by file, line and field. `--set dataset=NAME` reads a data set of the
    Hugging Face hub; SOURCE is then -.
    """
    from podium.environments.base import checked_options
    from podium.environments.scenarios import Counts, ScenarioSource, stream_scenarios
    from podium.environments.scenarios.loader import SPLITS

    options = {**({} if source == "-" else {"path": source}), **read_settings(settings)}
    read = checked_options(ScenarioSource, options, "scenarios")
    rows = []
    for split in SPLITS:
        counts = Counts()
        for _ in stream_scenarios(read, split, counts=counts):
            pass
        rows.append(
            {
                "split": split,
                "scenarios": counts.kept[split],
                "duplicates": counts.duplicates,
                "leaked": counts.leaked,
            }
        )
    if output == "table":
        table(
            ["SPLIT", "SCENARIOS", "DUPLICATES", "ALSO HELD OUT"],
            [[str(value) for value in row.values()] for row in rows],
        )
    else:
        data(rows, output)
