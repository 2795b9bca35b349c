"""Which charts a report has, and of which numbers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from podium.cli.html_report.collect import SAMPLED, ReportData
from podium.cli.html_report.curves import CURVES, REWARD, SUCCESS
from podium.cli.html_report.figures import Point, Series, line_chart, stacked_bars
from podium.jobs.v1 import job_service_pb2 as jobs


def learning_curve(data: ReportData) -> str:
    """Reward and success by step, with the evaluations on top."""
    chosen = [
        series(data.steps, name, CURVES[name].label, style)
        for style, name in enumerate((REWARD, SUCCESS), 1)
    ]
    for mode, style, shift in ((SAMPLED, 3, -5.0), ("greedy", 4, 5.0)):
        points = [
            Point(
                x=float(item.version),
                y=item.metrics["success"],
                low=item.success_low if item.success_high else None,
                high=item.success_high if item.success_high else None,
            )
            for item in data.of_mode(mode)
            if "success" in item.metrics
        ]
        name = f"held-out success, {mode}"
        chosen.append(Series(name, points, style, line=False, dots=True, shift=shift))
    chosen = [one for one in chosen if one.points]
    low = min([0.0, *(point.y for one in chosen for point in one.points)])
    high = max([1.0, *(point.y for one in chosen for point in one.points)])
    chart = line_chart(chosen, label="Reward and success by step", height=340, y_range=(low, high))
    if not chart:
        return ""
    return f'<h2>Learning curve</h2><div class="panel">{chart}</div>'


def dynamics(data: ReportData) -> str:
    """Small charts of the steps' other numbers, and their seconds by phase."""
    panels = []
    for name, curve in CURVES.items():
        # These two are the learning curve.
        if name in (REWARD, SUCCESS):
            continue
        chart = line_chart([series(data.steps, name, curve.title, 1)], label=curve.title)
        if chart:
            panels.append(panel(curve.title, curve.unit, chart))
    if phases := _phases(data.steps):
        panels.append(phases)
    if not panels:
        return ""
    return f'<h2>Training dynamics</h2><div class="grid2">{"".join(panels)}</div>'


def series(steps: Sequence[jobs.Step], name: str, label: str, style: int) -> Series:
    """One metric of the steps; steps without it are left out."""
    points = [Point(float(s.number), s.metrics[name]) for s in steps if name in s.metrics]
    return Series(label, points, style)


def panel(title: str, unit: str, chart: str) -> str:
    """A chart with its words above it."""
    return (
        f'<div class="panel"><h3>{escape(title)} <span class="soft" style="font-weight:400">'
        f"{escape(unit)}</span></h3>{chart}</div>"
    )


def _phases(steps: Sequence[jobs.Step]) -> str:
    prefix = "seconds/"
    totals: dict[str, float] = {}
    for step in steps:
        for name, value in step.metrics.items():
            if name.startswith(prefix):
                totals[name] = totals.get(name, 0.0) + value
    # Six colours: the smaller phases are told together.
    names = sorted(totals, key=lambda name: -totals[name])
    main, rest = names[:5], names[5:]
    labels = [name.removeprefix(prefix) for name in main] + (["other"] if rest else [])
    bars = [
        (
            float(step.number),
            [step.metrics.get(name, 0.0) for name in main]
            + ([sum(step.metrics.get(name, 0.0) for name in rest)] if rest else []),
        )
        for step in steps
    ]
    if not names:
        return ""
    chart = stacked_bars(labels, bars, label="Seconds by phase")
    return panel("Time of a step", "seconds by phase", chart)
