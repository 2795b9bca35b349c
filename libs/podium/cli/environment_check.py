"""`podium env check`: plays an environment without a model."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from podium.cli import findings as shown
from podium.cli.exits import CliError, Exit
from podium.cli.output import data, note, plain_output_option
from podium.cli.settings import read_settings

if TYPE_CHECKING:
    from podium.environments import Environment
    from podium.environments.checking import Bounds, Finding, Report

_LOOK_SECONDS = 0.5
# After the check's own bound, which ends what only waits.
_GRACE_SECONDS = 5.0


@click.command(short_help="Play an environment without a model, and say what is wrong.")
@click.argument("path")
@click.option(
    "--scenarios",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Play the first so many of each split.",
)
@click.option(
    "--attempts", type=click.IntRange(1, 1000), default=4, show_default=True, help="Of each."
)
@click.option(
    "--max-turns",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="After which an episode is cut.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds after which a reset or step hangs.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the environment; VALUE is YAML.",
)
@click.option("--strict", is_flag=True, help="Let warnings count as errors.")
@plain_output_option
def check(
    path: str,
    scenarios: int,
    attempts: int,
    max_turns: int,
    timeout: float,
    settings: tuple[str, ...],
    strict: bool,
    output: str,
) -> int:
    """Play PATH (task.py, module:Class or a built-in name) and say what is wrong with it.

    It is played by guesses, by odd replies as models write them now and then, and by its own
    baselines. Errors are what fails a job or lets it learn nothing: exceptions with their line,
    scenarios that are repeated or empty, observations without text, what differs with the same
    seed, rewards that are no numbers or all alike for baselines too, tools that are no JSON
    Schema. Exit code 1 tells of an error.
    """
    from podium.cli.environment_class import environment_class, scenarios_here
    from podium.core.errors import PodiumError
    from podium.environments.checking import Bounds

    scenarios_here()
    # What the task prints is not what this command prints.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            kind = environment_class(path)
        except PodiumError as error:
            raise click.UsageError(error.message) from error
        bounds = Bounds(scenarios, attempts, max_turns, hung_seconds=timeout)
        report = played(kind, read_settings(settings), bounds)
    if output == "table":
        show(report)
    else:
        data({**asdict(report), "ok": not report.errors}, output)
    failed = report.findings if strict else report.errors
    return Exit.FAILED if failed else Exit.OK


def played(kind: type[Environment], config: Mapping[str, Any], bounds: Bounds) -> Report:
    """The report of a check, which runs in a thread: what never returns must not keep this one.

    Raises:
        CliError: a call of the environment neither returns nor lets others run.
    """
    from podium.environments.checking import check as checked

    begun: dict[str, float] = {}
    results: list[Report] = []
    raised: list[BaseException] = []

    def begin(what: str) -> None:
        begun.clear()
        begun.update({what: time.monotonic()} if what else {})

    def body() -> None:
        try:
            results.append(asyncio.run(checked(kind, config, bounds, begin=begin)))
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=body, daemon=True, name="check")
    thread.start()
    while thread.is_alive():
        thread.join(_LOOK_SECONDS)
        for what, since in list(begun.items()):
            if time.monotonic() - since > bounds.hung_seconds + _GRACE_SECONDS:
                _give_up(kind, what, thread, bounds.hung_seconds)
    if raised:
        raise raised[0]
    return results[0]


def _give_up(kind: type[Environment], what: str, thread: threading.Thread, seconds: float) -> None:
    frames = sys._current_frames().get(thread.ident or 0)
    stack = traceback.extract_stack(frames) if frames else []
    own = Path(sys.modules[kind.__module__].__file__ or "")
    lines = [f"{own.name}:{f.lineno}" for f in stack if Path(f.filename) == own]
    where = f" at {lines[-1]}" if lines else ""
    error = CliError(
        f"{what} of {kind.__name__} has not returned after {seconds:g} s, and nothing else can "
        f"run meanwhile: it is{where}",
        "Bound the loop, or await what it waits for.",
    )
    from podium.cli.exits import show as tell

    tell(error)
    sys.stderr.flush()
    # The thread cannot be ended, and Python would wait for what it holds.
    os._exit(Exit.FAILED)


def show(report: Report) -> None:
    """Prints a report for people."""
    shown.show([*_seen(report), *map(as_shown, report.findings)])
    errors, warnings = len(report.errors), len(report.findings) - len(report.errors)
    if not report.findings:
        note("nothing is wrong that can be seen without a model")
    else:
        note(f"{_count(errors, 'error')}, {_count(warnings, 'warning')}")


def _seen(report: Report) -> list[shown.Finding]:
    """What was seen, wrong or not."""
    sizes = ", ".join(f"{count} in {split}" for split, count in report.scenarios.items())
    seen = [shown.Finding("info", "scenarios", sizes)] if sizes else []
    if not report.episodes:
        return seen
    turns = report.turns / report.episodes
    played = (
        f"{report.episodes} played, {report.ended} of them to their end, {turns:.1f} turns each"
    )
    low, high = min(report.rewards), max(report.rewards)
    mean = sum(report.rewards) / len(report.rewards)
    return [
        *seen,
        shown.Finding("info", "episodes", played),
        shown.Finding("info", "rewards", f"{low:g} to {high:g}, {mean:.3g} on average"),
        shown.Finding("info", "time", f"the slowest call took {report.slowest_seconds:.2f} s"),
    ]


def as_shown(found: Finding) -> shown.Finding:
    """A finding of a check as the commands show theirs."""
    status: shown.Status = "fail" if found.level == "error" else "warn"
    said = f"{found.line}: {found.said}" if found.line else found.said
    return shown.Finding(status, found.what, said, found.advice)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
