"""Charts for uPlot: each is an element with its numbers, which the page's script draws.

The same program draws the console's curves. It is inlined, so that the report stays one file that
loads nothing; its colours come from the page's CSS and follow its theme.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from podium.assets import REPORT_SCRIPT, UPLOT


@dataclass(frozen=True)
class Point:
    """A place in the data's own units; `low` and `high` draw an interval."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """A named line, or points only.

    `style` is a number from 1 that the page's CSS colours; `shift` moves the intervals by pixels
    to the right, so that several at the same x stand apart.
    """

    name: str
    points: Sequence[Point]
    style: int = 1
    line: bool = True
    dots: bool = False
    shift: float = 0.0


def line_chart(
    series: Sequence[Series],
    *,
    label: str,
    height: int = 200,
    y_range: tuple[float, float] | None = None,
) -> str:
    """Lines and points over steps; `label` is read by screen readers.

    `y_range` is widened where the data goes beyond it. Returns an empty
    string when there is no point at all.
    """
    shown = [_finite(one) for one in series]
    every = [point for one in shown for point in one.points]
    if not every:
        return ""
    values = [v for p in every for v in (p.y, p.low, p.high) if v is not None]
    x = sorted({point.x for point in every})
    chart = {
        "x": x,
        "height": height,
        "range": _range([*values, *(y_range or ())], exact=y_range is not None),
        "series": [_line(one, x) for one in shown],
    }
    return _figure(chart, label)


def stacked_bars(
    names: Sequence[str],
    bars: Sequence[tuple[float, Sequence[float]]],
    *,
    label: str,
    height: int = 200,
) -> str:
    """One bar an x with a part for each name, e.g. a step's seconds by phase."""
    if not bars:
        return ""
    parts = [
        {"name": name, "y": [_rounded(amounts[at]) for _, amounts in bars]}
        for at, name in enumerate(names)
    ]
    chart = {"stacked": True, "x": [x for x, _ in bars], "height": height, "series": parts}
    return _figure(chart, label)


def head() -> str:
    """What the page's head needs for its charts."""
    return f"<style>{(UPLOT / 'uPlot.min.css').read_text(encoding='utf-8')}</style>"


def script() -> str:
    """What draws them, for the end of the body."""
    program = (UPLOT / "uPlot.iife.min.js").read_text(encoding="utf-8")
    return f"<script>{program}</script><script>{REPORT_SCRIPT.read_text(encoding='utf-8')}</script>"


def _line(series: Series, x: Sequence[float]) -> dict[str, Any]:
    values = {point.x: _rounded(point.y) for point in series.points}
    bounds = [
        [p.x, _rounded(p.low), _rounded(p.high)]
        for p in series.points
        if p.low is not None and p.high is not None
    ]
    return {
        "name": series.name,
        "style": series.style,
        "line": series.line and len(series.points) > 1,
        # A single point is no line, and would not be seen.
        "dots": series.dots or len(series.points) == 1,
        "shift": series.shift,
        "y": [values.get(place) for place in x],
        "bounds": bounds,
    }


def _range(values: Sequence[float], *, exact: bool) -> list[float]:
    low, high = min(values), max(values)
    room = 0.0 if exact and high > low else (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    # What is never negative is not shown as if it could be.
    return [max(0.0, low - room) if low >= 0 else low - room, high + room]


def _finite(series: Series) -> Series:
    points = [
        replace(p, low=None, high=None) if not _is_interval(p) else p
        for p in series.points
        if math.isfinite(p.x) and math.isfinite(p.y)
    ]
    return replace(series, points=points)


def _is_interval(point: Point) -> bool:
    bounds = (point.low, point.high)
    return all(bound is not None and math.isfinite(bound) for bound in bounds)


def _rounded(value: float) -> float:
    """Six digits, which no screen shows more of."""
    return float(f"{value:.6g}") if math.isfinite(value) else 0.0


def _figure(chart: dict[str, Any], label: str) -> str:
    numbers = escape(json.dumps(chart, separators=(",", ":"), allow_nan=False))
    said = f'role="img" aria-label="{escape(label)}"'
    return f'<div class="chart" {said} data-chart="{numbers}"></div>'
