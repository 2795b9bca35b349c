"""Writes the chart's Grafana dashboards, charts/podium/files/dashboards/*.json.

usage: python tools/dashboards.py [--check]

What they show stands in dashboard_*.py. The words in capitals are the chart's to fill in: each
release has dashboards of its own, so that several can share a Grafana.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dashboard_job import JOB
from dashboard_panels import FIRING, NO_CLUSTER, J, Panel, R, Row
from dashboard_release import OVERVIEW
from dashboard_sampling import ENVIRONMENTS, POOL
from dashboard_services import SERVICES
from dashboard_tenants import TENANTS

FOLDER = Path(__file__).resolve().parent.parent / "charts" / "podium" / "files" / "dashboards"
ID = "podium-RELEASE_ID-"
TEMPO, LOKI = "${tempo}", "${loki}"


@dataclass(frozen=True)
class Board:
    """One dashboard; `variable` is a choice of its own: name, label and where its values are."""

    title: str
    rows: tuple[Row, ...]
    variable: tuple[str, str, str] | None = None


BOARDS = {
    "overview": Board("overview", OVERVIEW),
    "job": Board(
        "one job", JOB, ("job", "Job", f"label_values(podium_controller_step{{{R}}}, job_id)")
    ),
    "pool": Board(
        "pool",
        POOL,
        (
            "pool",
            "Pool",
            f"label_values(podium_inference_policies{{{R}}}, podium_component)",
        ),
    ),
    "environments": Board("judge and environments", ENVIRONMENTS),
    "services": Board("services", SERVICES),
    "tenants": Board("tenants and cost", TENANTS),
}
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def _panel(panel: Panel, number: int, x: int, y: int, width: int) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.empty:
        defaults["noValue"] = panel.empty
    if panel.most is not None:
        defaults |= {"min": 0, "max": panel.most}
    if panel.stat:
        # Left alone, Grafana shows whatever is 80 or more in red.
        defaults["color"] = {"mode": "thresholds"}
        steps: list[dict[str, Any]] = [{"value": None, "color": panel.base or "text"}]
        steps += [{"value": value, "color": color} for value, color in panel.levels]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    else:
        defaults["custom"] = {"fillOpacity": 30 if panel.stacked else 0, "showPoints": "never"}
        if panel.stacked:
            defaults["min"] = 0
            defaults["custom"]["stacking"] = {"mode": "normal"}
    links = []
    if panel.alert:
        url = f"RUNBOOK_URLdocs/runbooks/{panel.alert}.md"
        links.append({"title": f"Runbook: {panel.alert}", "url": url, "targetBlank": True})
    return {
        "id": number,
        "type": "stat" if panel.stat else "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "gridPos": {"x": x, "y": y, "w": width, "h": 4 if panel.stat else 8},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "links": links,
        "targets": [
            {
                "refId": chr(ord("A") + i),
                "expr": expression,
                "legendFormat": legend,
                "exemplar": panel.exemplars and "_bucket{" in expression,
            }
            for i, (expression, legend) in enumerate(panel.queries)
        ],
    }


def _row(name: str, row: Sequence[Panel], number: int, y: int) -> tuple[list[dict[str, Any]], int]:
    """A row's panels, numbers first and graphs under them, and where the next row begins."""
    place = {"x": 0, "y": y, "w": 24, "h": 1}
    panels: list[dict[str, Any]] = [
        {"id": number, "type": "row", "title": name, "gridPos": place, "collapsed": False}
    ]
    y += 1
    for some, height, most, widest in (
        ([p for p in row if p.stat], 4, 6, 6),
        ([p for p in row if not p.stat], 8, 4, 24),
    ):
        # Lines of about the same length: six are three and three.
        per_line = -(-len(some) // -(-len(some) // most)) if some else 1
        for start in range(0, len(some), per_line):
            line = some[start : start + per_line]
            width = min(24 // per_line, widest)
            for i, panel in enumerate(line):
                panels.append(_panel(panel, number + len(panels), i * width, y, width))
            y += height
    return panels, y


def _variable(name: str, label: str, query: str, current: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
    }
    if current:
        found["current"] = {"text": current, "value": current}
    return found


def _explore(datasource: str, query: dict[str, Any]) -> str:
    """A link to Grafana's Explore; variables stay readable for Grafana to fill in."""
    pane = {
        "datasource": datasource,
        "queries": [{"refId": "A", "datasource": {"uid": datasource}, **query}],
        "range": {"from": "${__from}", "to": "${__to}"},
    }
    text = quote(json.dumps({"a": pane}), safe="")
    text = re.sub(r"%24%7B(\w+)%7D", r"${\1}", text)
    return f"/explore?schemaVersion=1&orgId=1&panes={text}"


def _links(board: str) -> list[dict[str, Any]]:
    job = board == "job"
    spans = 'resource.service.name=~"podium-.+"'
    traces = "{" + spans + (' && span.podium.job.id="${job}"' if job else "") + "}"
    lines = '{namespace="${namespace}", pod=~"${release}-.+"}' + (' |= "${job}"' if job else "")
    console = "CONSOLE_URL/#/jobs/${job}" if job else "CONSOLE_URL"
    wanted = [
        ("Traces", _explore(TEMPO, {"query": traces, "queryType": "traceql"})),
        ("Logs", _explore(LOKI, {"expr": lines})),
        ("Console", console),
        ("Runbooks", "RUNBOOK_URLdocs/runbooks/README.md"),
    ]
    own: list[dict[str, Any]] = [
        {
            "type": "link",
            "title": title,
            "url": url,
            "targetBlank": True,
            "icon": "external link",
        }
        for title, url in wanted
    ]
    others = {
        "type": "dashboards",
        "title": "Podium",
        "tags": ["podium", "RELEASE_ID"],
        "asDropdown": True,
        "keepTime": True,
        "includeVars": True,
        "icon": "external link",
    }
    return [others, *own]


def _annotation(
    name: str, expression: str, text: str, colour: str, *, shown: bool
) -> dict[str, Any]:
    return {
        "name": name,
        "datasource": _DATASOURCE,
        "enable": shown,
        "iconColor": colour,
        "expr": expression,
        "step": "30s",
        "titleFormat": name,
        "textFormat": text,
    }


def _annotations(board: str) -> list[dict[str, Any]]:
    if board != "job":
        return []
    waits = f"podium_controller_waiting_since_timestamp_seconds{{{J}}}"
    # Two samples at least of whoever scrapes once a minute.
    weights = f"changes(podium_controller_step{{{J}}}[2m]) > 0"
    alerts = f"ALERTS{{{J}, {FIRING}}}"
    return [
        _annotation("Alert", alerts, "{{alertname}}", "red", shown=True),
        _annotation("Waits", waits, "{{reason}}", "orange", shown=True),
        # One a step is too much to look at, unless one asks for it.
        _annotation("New weights", weights, "a step was committed and served", "blue", shown=False),
    ]


def dashboard(name: str) -> dict[str, Any]:
    """One dashboard as the chart takes it."""
    board = BOARDS[name]
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in board.rows:
        made, y = _row(title, row, len(panels) + 1, y)
        panels += made
    up = "podium_controller_leader"
    variables: list[dict[str, Any]] = [
        {"name": "datasource", "label": "Metrics", "type": "datasource", "query": "prometheus"},
        {"name": "tempo", "label": "Traces", "type": "datasource", "query": "tempo"},
        {"name": "loki", "label": "Logs", "type": "datasource", "query": "loki"},
        _variable("namespace", "Namespace", f"label_values({up}, namespace)", "RELEASE_NAMESPACE"),
        _variable(
            "release",
            "Release",
            f'label_values({up}{{namespace="$namespace"}}, podium_release)',
            "RELEASE_NAME",
        ),
    ]
    if board.variable:
        variables.append(_variable(*board.variable))
    return {
        "uid": ID + name,
        "title": f"Podium: {board.title} (RELEASE_NAME in RELEASE_NAMESPACE)",
        "tags": ["podium", "RELEASE_ID"],
        "schemaVersion": 39,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "links": _links(name),
        "annotations": {"list": _annotations(name)},
        "templating": {"list": variables},
        "panels": panels,
    }


def panels_of(name: str) -> Iterator[Panel]:
    """Every panel of a dashboard."""
    for _, row in BOARDS[name].rows:
        yield from row


def expressions(name: str, *, needed: bool = False, cluster: bool = False) -> Sequence[str]:
    """Every query of a dashboard's panels; with `needed` those that each job gives data to.

    Args:
        cluster: each job in a cluster.
    """
    filled = ("", NO_CLUSTER) if cluster else ("",)
    found = [q for p in panels_of(name) if not needed or p.empty in filled for q, _ in p.queries]
    if not needed:
        found += [each["expr"] for each in _annotations(name)]
    return found


def main() -> None:
    """Writes the files, or with --check exits with 1 when one is not what this file gives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    wanted = {f"podium-{name}.json": dashboard(name) for name in BOARDS}
    stale = sorted({path.name for path in FOLDER.glob("*.json")} - set(wanted))
    for gone in stale:
        if not check:
            (FOLDER / gone).unlink()
    for file, board in wanted.items():
        path, text = FOLDER / file, json.dumps(board, indent=1) + "\n"
        if not path.exists() or path.read_text() != text:
            stale.append(file)
            if not check:
                path.write_text(text)
    if stale and check:
        sys.exit(f"stale: {', '.join(stale)}; run `make dashboards`")


if __name__ == "__main__":
    main()
