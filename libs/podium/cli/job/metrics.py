"""`podium job metrics`: the numbers of each step, as a table, as data or as curves."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click

from podium.cli.completers import complete_jobs, complete_metrics
from podium.cli.connection import connected
from podium.cli.exits import CliError, Exit
from podium.cli.output import data, note, table

if TYPE_CHECKING:
    from podium.jobs.v1 import job_service_pb2 as pb
    from podium.sdk import AsyncClient

SHOWN = (
    "reward_mean",
    "success_mean",
    "train/loss",
    "train/entropy",
    "train/kl_reference",
    "train/grad_norm",
    "staleness_max",
    "tokens_sampled",
)
"""Of many numbers those that a table shows unasked."""

DRAWN = ("reward_mean", "success_mean", "train/loss", "train/entropy")
"""And those that are drawn."""

_DRAWABLE = 1e300
# Told apart without colours too.
_MARKERS = ("*", "+", "o", "x", "#", "@")


@dataclass(frozen=True)
class _Run:
    """One job's steps."""

    job: str
    steps: Sequence[pb.Step]

    def names(self) -> set[str]:
        return {name for step in self.steps for name in step.metrics}


@click.command(short_help="Show or draw the numbers of a job's steps.")
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_jobs)
@click.option("--plot", is_flag=True, help="Draw curves in place of a table.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_metrics,
    help="Only these; a pattern such as 'train/*' means all that it fits.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(("table", "json", "yaml", "csv")),
    default="table",
    show_default=True,
    help="How to print the numbers.",
)
@connected
async def metrics(
    client: AsyncClient,
    jobs: Sequence[str],
    plot: bool,
    metrics: Sequence[str],
    output: str,
) -> None:
    """Show the numbers of a job's committed steps, or of several jobs beside each other.

    A table has the usual numbers, -o json, yaml and csv have all: a row a step, with 'job', 'step',
    'commit_time' and 'metrics', in csv a column for each metric. A number that is none (NaN) or
    infinite is null there, and an empty cell in csv stands for a number that the step lacks.

    --plot draws a curve for each metric, with a line for each job, as wide as the terminal.
    """
    if plot:
        if output != "table":
            raise click.UsageError(f"--plot draws in place of -o {output}; name one of them")
        from podium.cli.job.watch import needs_plotext

        needs_plotext()
    runs = [
        _Run(job, [step async for step in client.jobs.steps(job)]) for job in dict.fromkeys(jobs)
    ]
    everything = output in ("json", "yaml", "csv")
    names = chosen(runs, metrics, () if everything else DRAWN if plot else SHOWN)
    if plot:
        _plot(runs, names)
    elif output == "table":
        _table(runs, names)
    elif output == "csv":
        _csv(runs, names)
    else:
        data([_plain(run.job, step, names) for run in runs for step in run.steps], output)


def chosen(runs: Sequence[_Run], patterns: Sequence[str], usual: Sequence[str]) -> list[str]:
    """The metrics that are asked for, in that order; unasked the usual, or all where none is.

    Raises:
        CliError: no step has one that is asked for.
    """
    known = sorted(set().union(*(run.names() for run in runs)))
    if not patterns:
        return [name for name in usual if name in known] or known
    found: dict[str, None] = {}
    for pattern in patterns:
        fitting = [name for name in known if name == pattern or fnmatchcase(name, pattern)]
        if not fitting and known:
            from podium.core.contract.text import nearest

            jobs = ", ".join(run.job for run in runs)
            raise CliError(
                f"no step of {jobs} has a metric {pattern!r}{nearest(pattern, known)}",
                f"They have: {', '.join(known)}.",
                Exit.USAGE,
            )
        found.update(dict.fromkeys(fitting))
    return list(found)


def _table(runs: Sequence[_Run], names: Sequence[str]) -> None:
    several = len(runs) > 1
    rows = [
        [
            *([run.job] if several else []),
            str(step.number),
            *(f"{step.metrics[n]:.5g}" if n in step.metrics else "-" for n in names),
        ]
        for run in runs
        for step in run.steps
    ]
    table([*(["JOB"] if several else []), "STEP", *names], rows)


def _csv(runs: Sequence[_Run], names: Sequence[str]) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["job", "step", "commit_time", *names])
    for run in runs:
        for step in run.steps:
            numbers = (repr(step.metrics[n]) if n in step.metrics else "" for n in names)
            writer.writerow([run.job, step.number, step.commit_time.ToJsonString(), *numbers])


def _plain(job: str, step: pb.Step, names: Sequence[str]) -> dict[str, Any]:
    return {
        "job": job,
        "step": step.number,
        "commit_time": step.commit_time.ToJsonString(),
        "metrics": {
            name: step.metrics[name] if math.isfinite(step.metrics[name]) else None
            for name in names
            if name in step.metrics
        },
    }


def _plot(runs: Sequence[_Run], names: Sequence[str]) -> None:
    """Draws on stdout, in its width; without colours where it is no terminal."""
    from podium.cli.exits import colour_choice
    from podium.cli.html_report.plot import draw
    from podium.cli.progress import terminal_width

    if not names:
        note("(none)")
    colour = sys.stdout.isatty() and colour_choice() is None
    left_out = 0
    for name in names:
        lines = []
        for index, run in enumerate(runs):
            points = list(_points(run, name))
            drawable = [point for point in points if abs(point[1]) <= _DRAWABLE]
            left_out += len(points) - len(drawable)
            several = len(runs) > 1
            marker = "braille" if colour or not several else _MARKERS[index % len(_MARKERS)]
            lines.append((run.job if several else "", drawable, marker))
        if any(points for _, points, _ in lines):
            click.echo(draw(name, lines, colour=colour, width=terminal_width(sys.stdout)))
        else:
            note(f"{name}: nothing to draw")
    if left_out:
        note(f"left out {left_out} that are no finite numbers; -o csv has them")


def _points(run: _Run, name: str) -> Iterator[tuple[float, float]]:
    return ((float(s.number), s.metrics[name]) for s in run.steps if name in s.metrics)
