"""Another job beside this one: its curves over these, its numbers, and the keys that differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from google.protobuf.json_format import MessageToDict

from podium.cli.html_report.charts import panel, series
from podium.cli.html_report.collect import SAMPLED, ReportData
from podium.cli.html_report.curves import CURVES, REWARD, SUCCESS
from podium.cli.html_report.figures import line_chart
from podium.cli.html_report.scrolled import scrolled
from podium.jobs.v1 import job_service_pb2 as jobs


def compared(data: ReportData) -> str:
    """The section; nothing where no other job was asked for."""
    if data.other is None:
        return ""
    sides = (data, data.other)
    names = [escape(side.job.id) for side in sides]
    return (
        f"<h2>{names[0]} and {names[1]}</h2>{_curves(sides)}{_numbers(sides, names)}"
        f"{_keys(sides, names)}"
    )


def _curves(sides: tuple[ReportData, ReportData]) -> str:
    panels = ""
    for name in (REWARD, SUCCESS):
        title, unit = CURVES[name]
        lines = [
            series(side.steps, name, side.job.id, style)
            for side, style in zip(sides, (1, 3), strict=True)
        ]
        chart = line_chart([one for one in lines if one.points], label=f"{title} of both by step")
        panels += panel(title, unit, chart) if chart else ""
    return f'<div class="grid2" style="margin-bottom:12px">{panels}</div>' if panels else ""


def _numbers(sides: tuple[ReportData, ReportData], names: list[str]) -> str:
    rows: tuple[tuple[str, Callable[[ReportData], str]], ...] = (
        ("state", lambda side: jobs.JobState.Name(side.job.state)[len("JOB_STATE_") :].lower()),
        ("steps", lambda side: f"{side.job.completed_steps} of {side.job.spec.training.steps}"),
        ("reward of the last step", lambda side: _last(side, REWARD)),
        ("training success of the last step", lambda side: _last(side, SUCCESS)),
        ("held-out success, sampled", lambda side: _held_out(side, SAMPLED)),
        ("held-out success, greedy", lambda side: _held_out(side, "greedy")),
        ("tokens sampled", lambda side: f"{_total(side, 'tokens_sampled'):,.0f}"),
    )
    return _table(
        "Numbers of both",
        names,
        [(name, *(escape(of(side)) for side in sides)) for name, of in rows],
    )


def _keys(sides: tuple[ReportData, ReportData], names: list[str]) -> str:
    one, two = (_flat(MessageToDict(s.job.spec, preserving_proto_field_name=True)) for s in sides)
    keys = [key for key in sorted({*one, *two}) if one.get(key) != two.get(key)]
    if not keys:
        return '<p class="soft" style="margin-top:12px">Their specifications are the same.</p>'
    rows = [(escape(key), escape(one.get(key, "–")), escape(two.get(key, "–"))) for key in keys]
    return f'<h3 style="margin-top:16px">Keys that differ</h3>{_table("Keys", names, rows)}'


def _table(label: str, names: list[str], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return scrolled(label, f"<table><tr><th></th>{head}</tr>{body}</table>")


def _last(side: ReportData, name: str) -> str:
    found = [step.metrics[name] for step in side.steps if name in step.metrics]
    return f"{found[-1]:.3f}" if found else ""


def _held_out(side: ReportData, mode: str) -> str:
    """The last version's, with its interval."""
    found = [each for each in side.of_mode(mode) if "success" in each.metrics]
    if not found:
        return ""
    last = found[-1]
    interval = (
        f" (95 % {last.success_low:.2f} to {last.success_high:.2f})" if last.success_high else ""
    )
    return f"{last.metrics['success']:.3f}{interval}, version {last.version}"


def _total(side: ReportData, name: str) -> float:
    return sum(step.metrics.get(name, 0.0) for step in side.steps)


def _flat(given: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Values by their keys with dots; what is no text is JSON."""
    found: dict[str, str] = {}
    for key, value in given.items():
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{before}{key}.")
        else:
            # Whole numbers of 64 bits are strings here already.
            plain = isinstance(value, str)
            found[before + key] = value if plain else json.dumps(value, ensure_ascii=False)
    return found
