"""A job's curves as text, by plotext."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from podium.jobs.v1 import job_service_pb2 as jobs

if TYPE_CHECKING:
    from podium.cli.html_report.collect import ReportData

_MOST = 1e300
_HEIGHT = 15
_WIDEST = 100


def curves(
    steps: Sequence[jobs.Step],
    evaluations: Sequence[jobs.Evaluation],
    *,
    colour: bool | None = None,
    width: int = 0,
) -> str:
    """Mean reward and success of each step, and sampled evaluations as points.

    `colour` and `width` (columns) default to what stderr is.
    """
    rewards = _points(steps, "reward_mean")
    successes = _points(steps, "success_mean")
    measured = [
        (float(item.version), item.metrics["success"])
        for item in evaluations
        if item.mode == "sampled" and "success" in item.metrics
    ]
    return draw(
        "reward and success by step",
        [("reward", rewards, "braille"), ("success", successes, "braille")],
        [("evaluation", measured, "●")],
        colour=colour,
        width=width,
    )


def of_report(data: ReportData) -> str:
    """The curves of a report."""
    return curves(data.steps, data.evaluations)


def draw(
    title: str,
    lines: Sequence[tuple[str, Sequence[tuple[float, float]], str]],
    points: Sequence[tuple[str, Sequence[tuple[float, float]], str]] = (),
    *,
    colour: bool | None = None,
    width: int = 0,
) -> str:
    """Named lines and points, `(name, [(x, y), …], marker)`, as text; a line may lack a name."""
    import plotext

    if colour is None:
        colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    figure = plotext.figure
    figure.clear()
    figure.theme("simple")
    figure.plot_size(width or min(shutil.get_terminal_size((80, 24)).columns, _WIDEST), _HEIGHT)
    figure.title(title)
    lines = [(name, _drawable(series), marker) for name, series, marker in lines]
    points = [(name, _drawable(series), marker) for name, series, marker in points]
    for name, series, marker in lines:
        if series:
            signal = figure.signal(*_axes(series), marker=marker).lines()
            figure.draw(signal.label(name) if name else signal)
    for name, series, marker in points:
        if series:
            figure.draw(figure.signal(*_axes(series), marker=marker).label(name))
    found = [x for _, series, _ in (*lines, *points) for x, _ in series]
    if found:
        # Steps are whole numbers.
        ticks = whole_ticks(min(found), max(found))
        figure.ruler("x").ticks(ticks, [str(tick) for tick in ticks])
    text: str = figure.build().string(colorless=not colour)
    return text.rstrip()


def whole_ticks(low: float, high: float, most: int = 8) -> list[int]:
    """Whole numbers from `low` to `high`, evenly apart, at most `most`."""
    first, last = round(low), round(high)
    apart = max(1, -(-(last - first) // (most - 1)))
    return list(range(first, last + 1, apart))


def _points(steps: Sequence[jobs.Step], name: str) -> list[tuple[float, float]]:
    return [(float(step.number), step.metrics[name]) for step in steps if name in step.metrics]


def _drawable(series: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Numbers up to 1e300: at NaN plotext ends the process, and of greater ones no distance is."""
    return [(x, max(-_MOST, min(_MOST, y))) for x, y in series if math.isfinite(y)]


def _axes(series: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in series], [y for _, y in series]
