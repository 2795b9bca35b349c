"""Charts as inline SVG. Colours come from the page's CSS, so that they follow its theme."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 12, 28


@dataclass(frozen=True)
class Point:
    """A place in the data's own units; `low` and `high` draw an interval."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    title: str = ""


@dataclass(frozen=True)
class Series:
    """A named line, or points only.

    `style` is a number from 1 that the page's CSS colours; `shift` moves the
    series by pixels to the right, so that intervals at the same x stand apart.
    """

    name: str
    points: Sequence[Point]
    style: int = 1
    line: bool = True
    dots: bool = False
    shift: float = 0.0


@dataclass(frozen=True)
class _Frame:
    width: int
    height: int
    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        return _LEFT + (value - self.x_low) / (self.x_high - self.x_low) * (
            self.width - _LEFT - _RIGHT
        )

    def y(self, value: float) -> float:
        return (
            self.height
            - _BOTTOM
            - (value - self.y_low) / (self.y_high - self.y_low) * (self.height - _TOP - _BOTTOM)
        )


def line_chart(
    series: Sequence[Series],
    *,
    label: str,
    width: int = 720,
    height: int = 280,
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
    values = [
        value
        for point in every
        for value in (point.y, point.low, point.high)
        if value is not None and math.isfinite(value)
    ]
    values.extend(y_range or ())
    frame = _frame(width, height, [point.x for point in every], values, exact=y_range)
    parts = [*_grid(frame), *(_draw(one, frame) for one in shown)]
    return _svg(parts, width, height, label)


def stacked_bars(
    names: Sequence[str],
    bars: Sequence[tuple[float, Sequence[float]]],
    *,
    label: str,
    width: int = 720,
    height: int = 220,
) -> str:
    """One bar an x with a part for each name, e.g. a step's seconds by phase."""
    if not bars:
        return ""
    totals = [sum(parts) for _, parts in bars]
    xs = [x for x, _ in bars]
    frame = _frame(width, height, [min(xs) - 0.5, max(xs) + 0.5], [0.0, *totals])
    bar_width = max(1.0, (frame.x(1) - frame.x(0)) * 0.72)
    parts = list(_grid(frame))
    for x, amounts in bars:
        below = 0.0
        for style, (name, amount) in enumerate(zip(names, amounts, strict=True), start=1):
            if amount > 0:
                top, bottom = frame.y(below + amount), frame.y(below)
                parts.append(
                    f'<rect class="f{style}" x="{frame.x(x) - bar_width / 2:.1f}" y="{top:.1f}" '
                    f'width="{bar_width:.1f}" height="{bottom - top:.1f}">'
                    f"<title>{escape(name)}: {amount:.1f} s at step {x:g}</title></rect>"
                )
            below += amount
    return _svg(parts, width, height, label)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that cover [low, high], about `count` of them."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    rough = span / max(1, count - 1)
    magnitude = 10 ** math.floor(math.log10(rough))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def _frame(
    width: int,
    height: int,
    xs: Sequence[float],
    ys: Sequence[float],
    exact: tuple[float, float] | None = None,
) -> _Frame:
    x_low, x_high = min(xs), max(xs)
    if x_low == x_high:
        x_low, x_high = x_low - 0.5, x_high + 0.5
    y_low, y_high = min(ys), max(ys)
    if y_low == y_high:
        pad = abs(y_low) * 0.1 or 1.0
        y_low, y_high = y_low - pad, y_high + pad
    elif exact is None:
        steps = ticks(y_low, y_high)
        step = steps[1] - steps[0] if len(steps) > 1 else (y_high - y_low) or 1.0
        y_low = math.floor(y_low / step + 1e-9) * step
        y_high = math.ceil(y_high / step - 1e-9) * step
    return _Frame(width, height, x_low, x_high, y_low, y_high)


def _grid(frame: _Frame) -> list[str]:
    parts = []
    for value in ticks(frame.y_low, frame.y_high):
        y = frame.y(value)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{frame.width - _RIGHT}" y1="{y:.1f}" '
            f'y2="{y:.1f}"/>'
            f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{_number(value)}</text>"
        )
    whole = [value for value in ticks(frame.x_low, frame.x_high, 9) if value == int(value)]
    parts.extend(
        f'<text class="tick" x="{frame.x(value):.1f}" y="{frame.height - 8}" '
        f'text-anchor="middle">{value:.0f}</text>'
        for value in whole
    )
    return parts


def _draw(series: Series, frame: _Frame) -> str:
    parts = []
    style = series.style
    if series.line and len(series.points) > 1:
        path = " ".join(f"{frame.x(p.x):.1f},{frame.y(p.y):.1f}" for p in series.points)
        parts.append(f'<polyline class="s{style}" points="{path}"/>')
    for point in series.points:
        x, y = frame.x(point.x) + series.shift, frame.y(point.y)
        if point.low is not None and point.high is not None:
            low, high = frame.y(point.low), frame.y(point.high)
            parts.append(
                f'<path class="s{style} thin" d="M{x:.1f} {low:.1f}V{high:.1f}'
                f'M{x - 5:.1f} {low:.1f}h10M{x - 5:.1f} {high:.1f}h10"/>'
            )
        title = point.title or f"{series.name}: {_number(point.y)} at step {point.x:g}"
        # A small chart keeps unmarked points hoverable by a dot that is not seen.
        seen = "" if series.dots or len(series.points) == 1 else " ghost"
        parts.append(
            f'<circle class="f{style}{seen}" cx="{x:.1f}" cy="{y:.1f}" '
            f'r="{5 if series.dots else 4}"><title>{escape(title)}</title></circle>'
        )
    return "".join(parts)


def _finite(series: Series) -> Series:
    points = [p for p in series.points if math.isfinite(p.x) and math.isfinite(p.y)]
    return replace(series, points=points)


def _svg(parts: Sequence[str], width: int, height: int, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _number(value: float) -> str:
    size = abs(value)
    if size >= 10000:
        return f"{value / 1000:g}k"
    if size and size < 0.001:
        return f"{value:.1e}"
    return f"{round(value, 4):g}"
