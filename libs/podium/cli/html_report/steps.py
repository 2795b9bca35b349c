"""Every step in a row: what it paid, what the optimizer did, and how long it took."""

from __future__ import annotations

import math
from datetime import UTC
from html import escape

from podium.cli.html_report.collect import ReportData
from podium.cli.html_report.curves import CURVES, REWARD, SUCCESS
from podium.cli.html_report.scrolled import scrolled
from podium.jobs.v1 import job_service_pb2 as jobs

_COLUMNS = (
    REWARD,
    SUCCESS,
    "train/loss",
    "train/kl_reference",
    "train/entropy",
    "train/grad_norm",
    "tokens_sampled",
    "staleness_max",
)


def all_steps(data: ReportData) -> str:
    """The table, closed until it is asked for; nothing where no step was committed.

    A number that no step has takes no column.
    """
    if not data.steps:
        return ""
    columns = [name for name in _COLUMNS if any(name in step.metrics for step in data.steps)]
    names = "".join(f'<th class="n">{escape(CURVES[name].label)}</th>' for name in columns)
    rows = "".join(_row(step, columns) for step in data.steps)
    table = (
        f'<table><tr><th class="n">step</th>{names}<th class="n">seconds</th>'
        f"<th>committed</th></tr>{rows}</table>"
    )
    return (
        f"<h2>Every step</h2><details><summary>{len(data.steps)} steps: the mean reward and "
        "success of their episodes, the optimizer's numbers, the seconds from beginning to commit"
        f"</summary>{scrolled('Every step', table)}</details>"
    )


def _row(step: jobs.Step, names: list[str]) -> str:
    cells = "".join(f'<td class="n">{_number(step, name)}</td>' for name in names)
    seconds = (step.commit_time.ToNanoseconds() - step.start_time.ToNanoseconds()) / 1e9
    took = f"{seconds:.1f}" if step.start_time.seconds and seconds >= 0 else ""
    when = f"{step.commit_time.ToDatetime(UTC):%H:%M:%S} UTC" if step.commit_time.seconds else ""
    return (
        f'<tr><td class="n">{step.number}</td>{cells}<td class="n">{took}</td>'
        f'<td class="when">{when}</td></tr>'
    )


def _number(step: jobs.Step, name: str) -> str:
    """Four digits that count; what is no number is said."""
    if name not in step.metrics:
        return ""
    value = step.metrics[name]
    if math.isfinite(value) and value == int(value) and abs(value) < 1e9:
        return f"{value:.0f}"
    return f"{value:.4g}"
