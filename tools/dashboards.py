"""Writes the chart's Grafana dashboards, charts/podium/files/dashboards/*.json.

usage: python tools/dashboards.py [--check]

What they show stands in dashboard_panels.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dashboard_panels import JOB, OVERVIEW, Panel, R

FOLDER = Path(__file__).resolve().parent.parent / "charts" / "podium" / "files" / "dashboards"
DASHBOARDS = {
    "podium-overview": ("Podium: overview", OVERVIEW, ""),
    "podium-job": ("Podium: job", JOB, f"podium_controller_steps_total{{{R}}}"),
}


def _panel(panel: Panel, number: int, x: int, y: int, width: int) -> dict[str, Any]:
    custom = {"fillOpacity": 30, "stacking": {"mode": "normal"}} if panel.stacked else {}
    return {
        "id": number,
        "type": "stat" if panel.stat else "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": x, "y": y, "w": width, "h": 8},
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": custom}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + i), "expr": expression, "legendFormat": legend}
            for i, (expression, legend) in enumerate(panel.queries)
        ],
    }


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
    }


def dashboard(uid: str) -> dict[str, Any]:
    """One dashboard as Grafana imports it."""
    title, rows, jobs = DASHBOARDS[uid]
    panels: list[dict[str, Any]] = []
    y = 0
    for name, row in rows:
        place = {"x": 0, "y": y, "w": 24, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": name, "gridPos": place})
        y += 1
        per_line = min(len(row), 4)
        for i, panel in enumerate(row):
            width = 24 // per_line
            x = i % per_line * width
            panels.append(_panel(panel, len(panels) + 1, x, y + i // per_line * 8, width))
        y += (len(row) + per_line - 1) // per_line * 8
    up = "podium_controller_leader"
    variables: list[dict[str, Any]] = [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        _variable("namespace", "Namespace", f"label_values({up}, namespace)"),
        _variable(
            "release", "Release", f'label_values({up}{{namespace="$namespace"}}, podium_release)'
        ),
    ]
    if jobs:
        variables.append(_variable("job", "Job", f"label_values({jobs}, job_id)"))
    return {
        "uid": uid,
        "title": title,
        "tags": ["podium"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": variables},
        "panels": panels,
    }


def expressions(uid: str) -> Sequence[str]:
    """Every query of a dashboard's panels."""
    return [t["expr"] for panel in dashboard(uid)["panels"] for t in panel.get("targets", [])]


def main() -> None:
    """Writes the files, or with --check exits with 1 when one is not what this file gives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for uid in DASHBOARDS:
        path, text = FOLDER / f"{uid}.json", json.dumps(dashboard(uid), indent=1) + "\n"
        if not path.exists() or path.read_text() != text:
            stale.append(path.name)
            if not check:
                path.write_text(text)
    if stale and check:
        sys.exit(f"stale: {', '.join(stale)}; run `make dashboards`")


if __name__ == "__main__":
    main()
